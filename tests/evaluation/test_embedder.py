"""Whichever agent searches by meaning gets the evaluation's embedder, however it was named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import recollect
from recollect.agents.bank import BankAgent
from recollect.agents.rag import RagAgent
from recollect.errors import UserError
from recollect.evaluation import setup
from recollect.evaluation.options import EvalOptions
from recollect.memory.embeddings.folder import FolderEmbedder
from recollect.policies.scripted import ScriptedPolicy
from tests.agents.test_baselines import letters

TASKS = "recall@512"


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    names: list[str] = []

    def embedder(options: EvalOptions) -> Any:
        names.append(options.embed)
        return letters

    monkeypatch.setattr(setup, "_embedder", embedder)
    return names


def ready(*words: str, **given: Any) -> setup.Setup:
    options = EvalOptions((TASKS,), agents=words, **given)
    return setup.set_up(options, setup.known_agents(options))


@pytest.mark.parametrize(
    ("words", "given", "used"),
    [
        (("rag", "fold", "bank"), {}, 0),
        (("rag_dense", "rag_hybrid"), {}, 1),
        (("rag",), {"set": ("rag.mode=hybrid",)}, 1),
        (("rag", "bank"), {"set": ("bank.tools.embedding=true",)}, 1),
    ],
)
def test_an_embedder_is_opened_once_and_only_where_one_is_needed(opened, words, given, used):
    found = ready(*words, embed="mine", **given)
    assert opened == ["mine"] * used and found.embeds == bool(used)
    holders = [name for name, agent in found.bound.items() if getattr(agent, "embed", None)]
    assert bool(holders) == bool(used)
    assert not any(getattr(agent, "embed", None) for agent in found.agents.values())


def test_an_agent_of_a_program_searches_by_meaning(opened, tmp_path):
    """A run's agent comes the same way: as an object with its settings, and without an embedder."""
    result = recollect.evaluate(
        tasks=TASKS,
        agents={"mine": RagAgent("hybrid", 64, 4, 256), "notes": BankAgent()},
        model=ScriptedPolicy.model(lambda prompt: "no tool is called"),
        n=2,
        closed_book=False,
        out=tmp_path,
    )
    failed = [r["failure"] for r in result.episodes if r["agent"] == "mine"]
    assert failed == [None, None] and opened == ["minilm"]
    assert '"embed": "minilm"' in (tmp_path / "config.json").read_text()


def test_an_embedder_that_is_not_there_is_missed_before_anything_is_run(tmp_path):
    with pytest.raises(UserError):
        ready("rag", set=("rag.mode=dense",), embed=str(tmp_path / "nowhere"))
    assert not any(Path(tmp_path).iterdir())


@pytest.mark.parametrize(
    ("model", "device", "expected"),
    [
        ("folder", "auto", "auto"),
        ("http://localhost:8000/v1", "auto", "cpu"),  # the GPU may be that server's
        ("http://localhost:8000/v1", "cuda", "cuda"),
    ],
)
def test_an_embedder_shares_the_device_of_a_folder(monkeypatch, model, device, expected):
    monkeypatch.setattr(FolderEmbedder, "check", lambda _: None)
    opened: Any = setup._embedder(EvalOptions((TASKS,), model=model, device=device))
    assert opened.embedder.device == expected
