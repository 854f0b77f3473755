"""Asking: one way of putting a question to a model, in the same words for every agent.

What differs between the baselines is the text a question is answered from, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recollect.agents.prompts import fill, solve_from
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Message, Part, Tokenizer
from recollect.concurrency import concurrently
from recollect.types import Question

PROBLEM = "<problem>\n{problem}\n</problem>\n\nYour answer:"
# The text comes first: all questions about it share that prefix.
FROM_TEXT = f"<text>\n{{text}}\n</text>\n\n{solve_from('the text')}\n\n{PROBLEM}"
FROM_KNOWLEDGE = f"{solve_from('what you know')}\n\n{PROBLEM}"

NOTHING = "(nothing)"
"""Stands where there is no text to show."""


def from_text(question: Question, text: Part) -> Message:
    """Ask a question about a text."""
    return fill(FROM_TEXT, problem=question.text, text=text if len(text) else NOTHING)


def room_for_text(model: Model, question: Question, max_answer_tokens: int) -> int:
    """Return the tokens of text that fit the model's window beside question and answer."""
    around = model.renderer.opening([fill(FROM_TEXT, problem=question.text, text="")])
    return max(0, model.window - len(around) - max_answer_tokens)


async def ask(
    chats: Chats,
    questions: Mapping[int, Question],
    prompt: Callable[[int, Question], Message],
    max_answer_tokens: int,
    counts: Mapping[int, Mapping[str, int]] | None = None,
) -> dict[int, str]:
    """Put each question in a chat of its own, all at once; `counts` are noted in its context."""

    async def one(i: int, question: Question) -> str:
        name = f"question {i + 1}"
        chat = chats.open("answer", label=name, stratum=name, question=i)
        chat.context.counts |= (counts or {}).get(i, {})
        return (await chat.say(prompt(i, question), max_tokens=max_answer_tokens)).text

    texts = await concurrently(one(i, question) for i, question in questions.items())
    return dict(zip(questions, texts, strict=True))


def tokenizer_of(chats: Chats, role: str) -> Tokenizer:
    """Return the tokenizer of whoever speaks in a role."""
    return chats.model(role).renderer.tokenizer
