"""A trial before an evaluation: a mistake in a user's own code is found before anything is stored.

Every agent of a user's own tries the first episode of every task set; the evaluation has its
replies and makes none of these calls again. Only where it fails in the user's code, and a reply may
have caused it, there are more: it may be one odd reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from recollect.agents.base import given_early, is_ours
from recollect.agents.baselines import is_bound
from recollect.agents.shared import changes, held
from recollect.config.modules import is_named
from recollect.errors import UserError
from recollect.evaluation.calls import recorded
from recollect.evaluation.folder import EvaluationFolder
from recollect.evaluation.jobs import Job
from recollect.evaluation.models import Opened
from recollect.evaluation.scoring import check_metrics, try_metric
from recollect.evaluation.setup import Setup
from recollect.rewards.base import NoReward
from recollect.rollout import Rollout
from recollect.trials import PLAIN, fix_of, mistake, noticed, unawaited

MORE = 3
"""Episodes after a first one that failed; only a mistake that all of them make is one."""
TIMEOUT = 60.0
"""Seconds of a trial episode; a slow one is no mistake."""


async def try_out(
    setup: Setup,
    opened: Opened,
    store: EvaluationFolder,
    say: Callable[[str], None],
    timeout: float | None = None,
) -> None:
    """Refuse an agent whose own code fails on a set's first task; what is done is not tried.

    Says where the code is if it takes long. No trial takes longer than an episode may.
    """
    limit = TIMEOUT if timeout is None else min(TIMEOUT, timeout)
    for name, agent in setup.agents.items():
        if is_ours(agent):
            continue
        if is_bound(agent):
            say(f"{name} is shown the accepted answers: it is a bound, and no competitor")
        models = opened.own.get(name, opened.models)
        rollout = Rollout(setup.bound[name], models, NoReward(), timeout=limit)
        before = held(rollout.agent)
        for set_name, family in setup.grid.families.items():
            job = Job(set_name, name, 0, 0)
            if job.id in store.done:
                continue
            calls = store.tried(job.id)
            own = {role: recorded(model, role, calls) for role, model in models.items()}
            task = family.task(0, 0, setup.grid.split)
            if early := given_early(agent, task):
                say(f"note: {name} {early} ({set_name})")
            with unawaited(), noticed(say):
                first = await replace(rollout, models=own).episode(task, 0, job.key)
                found = mistake([first])
                if found is not None and found.kind not in PLAIN:
                    [more] = await rollout.groups([task], MORE, ("trial", set_name, name))
                    found = mistake([first, *more])
            if found is not None:
                what = f"{found.place}: {found.kind}: {found.message} (in a trial episode)"
                raise UserError(what, fix_of(found, "correct it, then run the same command again"))
        if shared := changes(rollout.agent, before):
            say(f"note: {shared}")


def try_metrics(setup: Setup, asked: Iterable[str]) -> None:
    """Refuse an unknown metric, and one of the user's own that fails on a right answer."""
    check_metrics(setup.primary.values())
    own = dict.fromkeys(n for n in (*asked, *setup.primary.values()) if is_named(str(n)))
    families = setup.grid.families.values()
    tasks = [family.task(0, 0, setup.grid.split) for family in families] if own else []
    for name in own:
        for question in (q for task in tasks for q in task.questions[:1]):
            try_metric(name, question.answers[0] if question.answers else "", question)
