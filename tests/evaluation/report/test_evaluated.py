"""From episodes to a report: the named agents over a scripted model, run, scored and written up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from recollect.agents.named import agents
from recollect.evaluation.assessment import assess
from recollect.evaluation.folder import EvaluationFolder, write_config
from recollect.evaluation.harness import Harness
from recollect.evaluation.jobs import Grid
from recollect.evaluation.report import write_report
from recollect.evaluation.results import Results, load, save
from tests.support.scripted import FACT, Codes, scripted_models

NAMES = ("full_context", "closed_book", "oracle", "rag", "fold", "rolling")


def respond(prompt: str) -> str:
    """Keep every code as a memory; answer with the one asked for, if it is in view."""
    facts = FACT.findall(prompt.replace("What is the code of", ""))
    if "boxed" not in prompt:
        return "<state>" + ". ".join(f"The code of {box} is {code}" for box, code in facts)
    found = [code for box, code in facts if f"of {box}?" in prompt]
    return f"\\boxed{{{found[-1]}}}" if found else "I do not know."


def evaluate(folder: Path) -> Results:
    chosen = {k: v for k, v in agents(300, 160, 40).items() if k in NAMES}
    for name in ("rag", "fold", "rolling"):
        chosen[name] = replace(chosen[name], chunk_size=None)  # no fact is cut in two
    sets = {"codes@4": Codes(4), "codes@8": Codes(8)}
    config = {
        "identity": {},
        "commands": ["recollect eval --tasks codes@4,8"],
        "settings": {},
        "model": {"id": "scripted"},
        "agents": dict.fromkeys(chosen, ""),
        "sets": {name: {"family": "codes", "primary": "exact_match"} for name in sets},
        "versions": {"recollect": "0"},
    }
    write_config(folder, config)
    store = EvaluationFolder(folder)
    try:
        asyncio.run(
            Harness(
                Grid(sets, list(chosen), 4, 1), chosen, scripted_models(respond), store, 4
            ).run()
        )
    finally:
        store.close()
    save(asyncio.run(assess(folder)), folder)
    return load(folder)


def test_the_named_agents_from_episodes_to_a_report(tmp_path: Path) -> None:
    found = evaluate(tmp_path)
    means = {(c.task, c.agent): c.scores["exact_match"].mean for c in found.cells}
    for task in ("codes@4", "codes@8"):
        # What sees or keeps the fact answers; eight facts are more than the small memories hold.
        for name in ("full_context", "oracle", "rag"):
            assert means[task, name] == 1.0, name
        assert means[task, "closed_book"] == 0.0
    assert means["codes@4", "fold"] == means["codes@4", "rolling"] == 1.0
    costs = {c.agent: c.cost for c in found.cells if c.task == "codes@8"}
    for name in ("full_context", "closed_book", "oracle", "rag"):
        assert costs[name].build_calls == 0 and costs[name].answer_calls == 4
    assert costs["fold"].build_calls == costs["rolling"].build_calls > 4
    assert costs["rag"].memory_chars > 8 * len("The code of box0 is c0x0x0.") - 8
    markdown, page = (path.read_text() for path in write_report(tmp_path))
    assert (
        "| codes@8 (exact_match) | 4 | **1.000 [0.510, 1.000]** | 0.000 [0.000, 0.490] |"
        in markdown
    )
    assert '<svg class="chart"' in page and "codes (exact_match)" in page
    kept = [e.memory for e in found.examples if e.agent == "fold"]
    assert all(memory.startswith("<state>") for memory in kept)
    assert not [e.memory for e in found.examples if e.agent == "closed_book" and e.memory]
