"""Chunks, memories and a model's window: what does not fit is refused with figures that do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from recollect.agents.callback import CallbackAgent
from recollect.agents.fold import FoldAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.rolling import RollingAgent
from recollect.errors import UserError

AGENTS = [(FoldAgent, "memory"), (GatedAgent, "memory"), (CallbackAgent, "memory"),
          (RollingAgent, "state")]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), AGENTS)
@pytest.mark.parametrize(("chunk_size", "kept"), [(900, 50), (300, 2000)])
def test_the_figure_of_the_fix_is_the_largest_that_fits(kind, name, chunk_size, kept):
    agent: Any = kind(chunk_size=chunk_size, **{f"max_{name}_tokens": kept})
    with pytest.raises(UserError, match="do not fit the model's window of 1024") as caught:
        agent.check_window(1024)
    most = int(re.findall(r"at most (\d+)", caught.value.fix)[0])
    both = f"--agent.max-{name}-tokens" in caught.value.fix
    assert both == (kept == 2000)

    def check(size: int) -> None:
        changed = {"chunk_size": size} | ({f"max_{name}_tokens": size} if both else {})
        replace(agent, **changed).check_window(1024)

    check(most)
    with pytest.raises(UserError):
        check(most + 1)


@pytest.mark.parametrize(("kind", "name"), AGENTS)
def test_a_text_that_fills_the_window_alone_is_refused(kind, name):
    agent: Any = kind(chunk_size=None, **{f"max_{name}_tokens": 600})
    with pytest.raises(UserError, match=f"a {name} of 600 tokens"):
        agent.check_window(1024)
    agent.check_window(2048)
