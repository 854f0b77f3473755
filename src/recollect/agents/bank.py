"""Bank: read without knowing the questions, keep notes with tools, then answer many questions.

Each chunk is one chat with tools in role `memory`; its last words are the core memory that the next
one sees. Each question is a chat of its own in role `answer` (the Unified Memory Agent's loop).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from recollect.agents.bank_prompts import BankPrompts
from recollect.agents.estimates import Lengths, Work, chat_lengths, said_in_chat
from recollect.agents.reading import Ask, Span, read_and_ask, spans, unasked, windows
from recollect.agents.resources import Resources
from recollect.agents.templates import fill
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chat, Chats, Reply
from recollect.chat.rendering import Part, Tokenizer
from recollect.chat.tool_calls import Parsed, parse_reply
from recollect.chat.tool_loop import converse
from recollect.chat.tools import Call, Limits, Malformed, Tool, ToolBox
from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.memory.bank import BankMemory
from recollect.memory.bank_tools import BankTools
from recollect.memory.passages import PassageIndex
from recollect.memory.store import Embed
from recollect.types import Question, Task

NO_MEMORY = "Nothing yet"


@dataclass(frozen=True)
class BankAgent:
    """Write notes and a core memory chunk by chunk; answer every question from them."""

    chunk_size: int | None = 5000
    """Tokens per chunk; None takes the task's own chunks as they are."""
    max_core_tokens: int = 1000
    """Limit of the core memory; a longer one keeps only its end."""
    max_chunks: int | None = None
    """Longer texts lose their middle: the first and the last half of this many chunks are read."""
    tools: BankTools = BankTools()
    limits: Limits = Limits(
        max_assistant_turns=10,
        max_parallel_calls=10,
        max_tool_response_length=3000,
        truncation="head",
    )
    """Limits of every chat."""
    prompts: BankPrompts = BankPrompts()
    more_tools: tuple[Tool, ...] = ()
    """Tools of yours beside its own, in every chat; --tools sets them."""
    embed: Embed | None = field(default=None, repr=False)
    """The embedder of the tool memory_embedding_retrieve; `bind` fills it in."""

    def __post_init__(self) -> None:
        check_bounds("agent", self, chunk_size=FROM_1, max_core_tokens=FROM_1, max_chunks=FROM_1)

    def bind(self, resources: Resources) -> BankAgent:
        """Open an embedder if a tool searches by meaning."""
        if not self.tools.embedding or self.embed or resources.open_embedder is None:
            return self
        return replace(self, embed=resources.open_embedder())

    def lengths(self, window: int | None) -> Lengths:
        """Bound the chats by their limits."""
        return chat_lengths(self.limits, window)

    def work(self, task: Task, tokenizer: Tokenizer, window: int) -> Work:
        """Add up one episode; what tools return is not known, so every chat may fill its room."""
        sizes = [len(ids) for ids, _ in windows(task, tokenizer, self.chunk_size, self.max_chunks)]
        most, said = said_in_chat(self.limits, window)
        chats = len(sizes) + len(task.questions)
        return Work(chats, chats * most, sum(sizes), chats * said)

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""
        most = self.limits.max_context_tokens
        if most is not None and most > window:
            raise UserError(
                f"chats of {most} tokens do not fit the model's window of {window}",
                f"set --agent.limits.max-context-tokens to at most {window}",
            )
        room = most or window
        # The prompt and the descriptions of the tools take some more.
        rest = self.max_core_tokens + self.limits.max_turn_tokens + 256
        if rest + (self.chunk_size or 0) > room:
            fix = f"set --agent.chunk-size to at most {room - rest}"
            if rest >= room:
                fix = (
                    "set --agent.max-core-tokens and --agent.limits.max-turn-tokens lower, or"
                    " choose a model with a larger window"
                )
            chunks = f"chunks of {self.chunk_size} tokens, " if self.chunk_size else ""
            raise UserError(
                f"{chunks}a core memory of {self.max_core_tokens} tokens and turns of"
                f" {self.limits.max_turn_tokens} leave no room for tools in {room}",
                fix,
            )

    def new_memory(self, task: Task) -> BankMemory:
        """Start with nothing written."""
        return BankMemory()

    async def run(self, task: Task, chats: Chats, memory: BankMemory) -> list[str]:
        """Read the chunks into the memory, asking each question at its position."""
        passages = PassageIndex(self.tools.passage_size, self.embed)

        async def ask(due: dict[int, Question]) -> dict[int, str]:
            return await self._ask(due, chats, memory, passages)

        return await self._read_all(task, chats, memory, passages, ask)

    async def read(self, task: Task, chats: Chats, memory: BankMemory) -> None:
        """Read the chunks into the memory, answering nothing."""
        passages = PassageIndex(self.tools.passage_size, self.embed)
        await self._read_all(task, chats, memory, passages, unasked)

    async def _read_all(
        self, task: Task, chats: Chats, memory: BankMemory, passages: PassageIndex, asks: Ask
    ) -> list[str]:
        if self.tools.embedding and self.embed is None:
            raise UserError("memory_embedding_retrieve needs an embedder", "set the agent's embed")
        tokenizer = _tokenizer(chats, "memory")
        steps = spans(task, tokenizer, self.chunk_size, self.max_chunks)

        async def read(chunk: list[int], _span: Span, label: str) -> None:
            await self._read(chunk, label, chats, memory)
            passages.read(tokenizer.decode(chunk))

        return await read_and_ask(task, steps, read, asks)

    async def _read(self, chunk: list[int], label: str, chats: Chats, memory: BankMemory) -> None:
        tools = self.tools.for_reading(memory, lambda: f"{label}, turn {len(chat.context.turns)}")
        toolbox = ToolBox((*tools, *self.more_tools), self.limits)
        chat = chats.open("memory", label=label, tools=toolbox.schemas)
        opening = fill(self.prompts.memory, chunk=chunk, memory=_shown(memory, same=True))
        ended = await converse(chat, [opening], toolbox, _parse, self.prompts.memory_end)
        # Who only made calls until the limit has not said what the core should be: it stays.
        if core := without_thinking(ended.text):
            ids = _sampled(chat, core)
            kept = ids[-self.max_core_tokens :]
            text = core if len(kept) == len(ids) else _tokenizer(chats, "memory").decode(kept)
            memory.rewrite(text, kept, label)

    async def _ask(
        self,
        questions: dict[int, Question],
        chats: Chats,
        memory: BankMemory,
        passages: PassageIndex,
    ) -> dict[int, str]:
        # Another model's tokens mean nothing to this one: it is given the text.
        same = _tokenizer(chats, "answer") is _tokenizer(chats, "memory")
        own = self.tools.for_answering(memory, passages)
        toolbox = ToolBox((*own, *self.more_tools), self.limits)

        async def ask(i: int, question: Question) -> str:
            name = f"question {i + 1}"
            chat = chats.open("answer", label=name, stratum=name, question=i, tools=toolbox.schemas)
            shown = _shown(memory, same)
            opening = fill(self.prompts.answer, question=question.text, memory=shown)
            ended = await converse(chat, [opening], toolbox, _parse, self.prompts.answer_end)
            return without_thinking(ended.text)

        texts = await concurrently(ask(i, q) for i, q in questions.items())
        return dict(zip(questions, texts, strict=True))


def without_thinking(text: str) -> str:
    """Return what follows the thinking; a thought that never ends is followed by nothing."""
    return text.rpartition("</think>")[2].partition("<think>")[0].strip()


def _parse(chat: Chat, reply: Reply) -> Parsed:
    """Read the calls of a reply; malformed ones are answered in the published system's words."""
    parsed = parse_reply(chat, reply)
    calls = [
        call if isinstance(call, Call) else Malformed(f"Failed to parse tool call: {call.problem}")
        for call in parsed.calls
    ]
    return Parsed(tuple(calls), parsed.text)


def _sampled(chat: Chat, text: str) -> tuple[int, ...]:
    """Return a text's tokens: those that were sampled, if the last turn says nothing but it."""
    tokenizer = chat.model.renderer.tokenizer
    ids = chat.context.turns[-1].token_ids
    while ids and ids[-1] in tokenizer.end_ids:
        ids = ids[:-1]
    return ids if tokenizer.decode(ids) == text else tuple(tokenizer.encode(text))


def _tokenizer(chats: Chats, role: str) -> Tokenizer:
    return chats.model(role).renderer.tokenizer


def _shown(memory: BankMemory, same: bool) -> Part:
    return (same and memory.core_ids) or memory.core or NO_MEMORY
