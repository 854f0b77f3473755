"""Episodes that a person labelled with why they failed: read from a file of one object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recollect.types import Question
from recollect.view.stored import Op, Part, Said, Stored

FILE = Path(__file__).parents[1] / "view" / "labelled_episodes.jsonl"


def labelled() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def stored(item: dict[str, Any]) -> Stored:
    """Return a labelled item as its agent would have left it in a run."""
    if item.get("shape") == "curator":
        return _ended(item, [_conversation(item["steps"])], _operations(item["steps"], "turn"), "")
    if "steps" in item:  # a context for every chunk, and operations in each
        parts = [
            Part(
                "memory",
                (Said(f"{item['question']}\n\n{step['read']}", step["say"]),),
                f"chunk {i}",
                counts={"malformed": 1} if step.get("malformed") else {},
            )
            for i, step in enumerate(item["steps"], 1)
        ]
        return _ended(item, parts, _operations(item["steps"], "chunk"), "")
    parts, ops, memory = [], [], ""
    replies = item.get("replies", item["memories"])
    for i, (new, reply) in enumerate(zip(item["memories"], replies, strict=True)):
        prompt = f"<problem>\n{item['question']}\n</problem>\n\n<section>\n{item['chunks'][i]}\n"
        prompt += f"</section>\n\n<memory>\n{memory or 'No previous memory'}\n</memory>"
        counts = {"malformed": 1} if item.get("malformed") else {}
        label = f"chunk {i + 1}"
        parts.append(Part("memory", (Said(prompt, reply),), label, counts=counts))
        if not counts:
            ops.append(Op("replace", {"text": new}, label))
            memory = new
    return _ended(item, parts, ops, memory)


def _conversation(steps: list[dict[str, Any]]) -> Part:
    """Return one long context, as an agent with tools has it."""
    return Part("memory", tuple(Said(step["read"], step["say"]) for step in steps), "curate")


def _operations(steps: list[dict[str, Any]], place: str) -> list[Op]:
    numbered = enumerate(steps, 1)
    return [Op(kind, data, f"{place} {i}") for i, step in numbered for kind, data in step["ops"]]


def _ended(item: dict[str, Any], parts: list[Part], ops: list[Op], memory: str) -> Stored:
    asked = f"<problem>\n{item['question']}\n</problem>\n\n<memory>\n{memory}\n</memory>"
    failure = item.get("failure")
    if not failure:
        turn = Said(asked, item["answer"], item.get("stop", "stop"))
        parts.append(Part("answer", (turn,), "question 1", 0))
    return Stored(
        "task",
        (Question(item["question"], tuple(item["answers"]), every=item.get("every", False)),),
        tuple(parts),
        tuple(ops),
        () if failure else (item["answer"],),
        (0.0,),
        failure=failure,
        boxed=item.get("boxed", False),
    )
