"""Prompts of the bank agent, in general and for ledgers."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.templates import check_fields


@dataclass(frozen=True)
class BankPrompts:
    """Texts with the fields {chunk} and {memory}, or {question} and {memory}."""

    memory: str = (
        "You are reading a long text one section at a time. Later you will be asked questions about"
        " it. You do not know them yet, and then you will have only what you keep now: a short core"
        " memory, and a memory bank of notes that are looked up by their titles.\n\n"
        "<section>\n{chunk}\n</section>\n\n<core_memory>\n{memory}\n</core_memory>\n\n"
        "1. Put what may be asked about into the memory bank with the tools: names, dates, numbers,"
        " events, and what has changed. One subject per note, under a title that you will find"
        " again. If there is a note on the subject, look it up and update it.\n"
        "2. Then reply without a tool call. Your reply becomes the new core memory: one to three"
        " sentences on what the text is about and how the notes are titled."
    )
    """Chunk first: then siblings, whose memories differ, share the prompt's beginning."""
    memory_end: str = "No more tool calls: reply with the new core memory now."
    """Follows the last tool response that the limits allow, like answer_end."""
    answer: str = (
        "You have read a long text. What you kept of it is a short core memory and a memory bank of"
        " titled notes; the text itself can be searched.\n\n"
        "<core_memory>\n{memory}\n</core_memory>\n\n<question>\n{question}\n</question>\n\n"
        "Look into the memory bank and search the text with the tools. If you find nothing, try"
        " other titles and other words before you give up. Then reply without a tool call and put"
        " the answer in \\boxed{}."
    )
    answer_end: str = "No more tool calls: reply now and put the answer in \\boxed{}."

    def __post_init__(self) -> None:
        check_fields("memory", self.memory, {"chunk", "memory"})
        check_fields("answer", self.answer, {"question", "memory"})


LEDGER_PROMPTS = BankPrompts(
    memory=(
        "You keep the books of somebody who tells you every few days what they spent. Later you"
        " will be asked for sums and maxima over dates and categories. You do not know the"
        " questions yet, and then you will have only what you keep now: a short core memory, and a"
        " memory bank of notes that are looked up by their titles.\n\n"
        "<session>\n{chunk}\n</session>\n\n<core_memory>\n{memory}\n</core_memory>\n\n"
        "The categories are Dining, Transportation, Shopping, Entertainment, Utilities, Medical,"
        " Education and Other. Keep four kinds of notes in the bank, each with a number as its"
        " content:\n"
        "- DATE_CATEGORY_Amount, such as 2023-12-31_Dining_Amount: the sum in that category\n"
        "- DATE_CATEGORY_Count: how many payments that sum has\n"
        "- DATE_LargestSingleTransactionAmount\n"
        "- DATE_TotalAmount\n"
        "1. Go through the session and add up every payment, to the cent.\n"
        "2. Add these notes with memory_add; if one is there already, look it up and update it.\n"
        "3. Then reply without a tool call. Your reply becomes the new core memory: which dates and"
        " categories the books cover, and GlobalTotalAmount, the sum of everything so far."
    ),
    memory_end="No more tool calls: reply with the new core memory and its GlobalTotalAmount now.",
    answer=(
        "You keep the books of somebody. What you kept is a short core memory and a memory bank;"
        " the talks themselves can be searched.\n\n"
        "<core_memory>\n{memory}\n</core_memory>\n\n<question>\n{question}\n</question>\n\n"
        "The bank holds notes titled DATE_CATEGORY_Amount, DATE_CATEGORY_Count,"
        " DATE_LargestSingleTransactionAmount and DATE_TotalAmount, with dates such as 2023-12-31."
        " memory_list shows those whose title contains its filter:\n"
        "- sums of one category: filter CATEGORY_Amount, then add up the dates in question\n"
        "- sums of everything, or the largest payment: filter TotalAmount or Largest; the sum of"
        " all dates is GlobalTotalAmount in the core memory\n"
        "- one date, or the number of payments: filter that date, or Count\n"
        "If a note is missing, search the talks. Then reply without a tool call and put the answer"
        " in \\boxed{}."
    ),
)
"""Prompts for tasks of the family `ledger`: the notes are account books."""
