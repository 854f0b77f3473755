"""A hundred thousand mutated tool calls: no crash, no hang, every one answered."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random

from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.chat.tool_calls import CLOSE, OPEN, read_calls
from recollect.chat.tool_loop import converse
from recollect.chat.tools import Limits, ToolBox
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.store import Store, replay
from recollect.memory.tools import MemoryTools
from recollect.policies.scripted import ScriptedPolicy, replies
from tests.support.bytes_tokenizer import ByteTokenizer

COUNT = 100_000
BASE = Corpus.build(
    "people",
    [
        Draft("Maria paints boats", {"source": "observation", "evidence": ("D1:1",)}),
        Draft("Jon runs a shop", {"source": "conversation", "session": "session_1"}),
    ],
)


def called(name: str, **arguments: object) -> str:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{OPEN}\n{body}\n{CLOSE}"


SEEDS = [
    called("search_memory", query="boats", top_k=3, speaker_filter="Maria, any"),
    called("search_memory", list_all=True),
    called("manage_memory", operation="create", content='a "fact" {1}', evidence="D1:1, D1:2"),
    called("manage_memory", operation="update", memory_id="memory_1", content="naïve 🛶"),
    called("manage_memory", operation="delete", memory_id="memory_2"),
    called("manage_memory", operation="merge", memory_ids=["memory_1", "memory_2"], content="x"),
    called("manage_memory", operation="split", memory_id="memory_1", parts=["a", "b"]),
    "Let me see. " + called("search_memory", query="shop") * 2,
    f"{OPEN}<function=search_memory><parameter=query>x</parameter></function>{CLOSE}",
    f"<think>\nhm\n</think>\n{called('manage_memory', operation='create', content='x')} DONE",
]
PIECES = [
    *(OPEN, CLOSE, "{", "}", "[", "]", '"', "\\", ",", ":", "'", "\n", " ", "<", ">", "null"),
    *("true", "NaN", "-1e999", "9" * 5000, "\\ud83d", "\x00", "\u2028", "{" * 2000, "[" * 2000),
    *('"name"', '"arguments"', "search_memory", "manage_memory", "<think>", "</think>", "DONE"),
    *("<function=", "<parameter=", "</function>", "</parameter>", "}}", '": "', "memory_1", "é"),
]


def mutated(random: Random) -> str:
    """Cut, double, swap, insert and replace pieces of a call, one to six times."""
    text = random.choice(SEEDS)
    for _ in range(random.randint(1, 6)):
        at, end = sorted((random.randint(0, len(text)), random.randint(0, len(text))))
        end = min(end, at + random.choice((1, 1, 3, 40)))
        match random.randrange(6):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:end] + text[at:]
            case 2:
                text = text[:at] + random.choice(PIECES) + text[at:]
            case 3:
                text = text[:at] + random.choice(PIECES) + text[end:]
            case 4:
                text = text[:at] + chr(random.randrange(1, 0xD800)) + text[at + 1 :]
            case 5:
                text = text[end:] + text[:end]
    return text


def opened() -> tuple[Store, ToolBox]:
    store = Store(BASE)
    tools = MemoryTools().bind(store, lambda: "turn 1")
    return store, ToolBox(tools, Limits(max_parallel_calls=4, max_tool_response_length=300))


async def answer_all(texts: list[str]) -> tuple[int, list[float]]:
    """Answer every text; return how many calls there were, and the seconds of each text."""
    store, toolbox = opened()
    total, seconds = 0, []
    for number, text in enumerate(texts):
        started = time.process_time()
        parsed = read_calls(text)
        answers = await toolbox.answer(parsed.calls)
        seconds.append(time.process_time() - started)
        assert len(answers) == len(parsed.calls)
        for answer in answers:
            assert answer.text.strip() and len(answer.text) <= 300
            answer.text.encode()
        # Whatever was said outside thinking and looks like a call has been answered.
        if OPEN in text and "think>" not in text:
            assert answers, text
        total += len(answers)
        if number % 1000 == 999:
            assert replay(BASE, store.ops).snapshot() == store.snapshot()
            store, toolbox = opened()
    return total, seconds


def test_a_hundred_thousand_mutated_calls_are_all_answered():
    random = Random(3)
    texts = [mutated(random) for _ in range(COUNT)]
    started = time.process_time()
    total, seconds = asyncio.run(answer_all(texts))
    assert total > COUNT / 2 and len(seconds) == COUNT
    assert time.process_time() - started < 30
    assert max(seconds) < 1


def test_time_is_linear_in_the_text():
    for piece in (
        *(OPEN, CLOSE, OPEN + "{", OPEN + '{"', OPEN + '{"a":"', OPEN + '{"a":[', OPEN + " "),
        *(
            OPEN + '{"name":"a"}',
            OPEN + "<function=",
            OPEN + "<function=a><parameter=b>",
            "<think>",
        ),
        *('{"name"', '"arguments"', '{"a":', "[", '"\\', "\\ud83d", " ", "<", "tool_call>"),
    ):
        text = piece * (400_000 // len(piece))
        started = time.process_time()
        parsed = read_calls(text)
        read_calls(OPEN + '{"name": "' + text)
        assert time.process_time() - started < 5, piece
        assert len(parsed.calls) < 50 and len(parsed.text) <= len(text)


def test_a_whole_chat_survives_whatever_the_model_says():
    random = Random(4)
    tokenizer = ByteTokenizer()

    async def chats() -> None:
        for _ in range(150):
            said = [mutated(random)[:2000] for _ in range(6)]
            _, toolbox = opened()
            policy = ScriptedPolicy(tokenizer, replies(said))
            model = Model(policy, Renderer(tokenizer), window=12_000)
            chat = Chats({"memory": model}, (0,)).open("memory", tools=toolbox.schemas)
            limits = Limits(max_assistant_turns=6, max_parallel_calls=4, max_turn_tokens=4000)
            transcript = await converse(chat, [user("go")], ToolBox(toolbox.tools, limits))
            assert 1 <= transcript.turns <= 6
            assert len(chat.context.ids) == chat.context.turns[-1].end

    asyncio.run(chats())
