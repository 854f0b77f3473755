"""A trial before a run: a mistake in a user's own code is found in seconds, not after a batch.

A run tries out a few episodes with its own models. A dry run rehearses with a policy that always
says the same, so that it needs no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.agents.base import given_early, is_ours, part_name
from recollect.agents.shared import changes, held
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.concurrency.stop import Stop
from recollect.config.roles import ROLES, ModelsConfig
from recollect.config.stored import own_sources
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.metrics import never_right
from recollect.policies.bytes import Utf8Tokenizer
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rewards.base import NoReward, Reward
from recollect.rollout import Rollout
from recollect.tasks.base import Split
from recollect.tasks.function import first_task, in_both
from recollect.train.repeats import changed_reward, check_metrics, repeating
from recollect.train.wiring import make_agent, make_reward
from recollect.trials import PLAIN, fix_of, mistake, noticed, unawaited
from recollect.types import Episode, Task

EPISODES = 4
"""A model may say what an agent cannot read: only a mistake that all episodes make stops a run."""
SAID = "yes"
"""What the policy of a rehearsal says."""


def has_own_code(config: TrainConfig) -> bool:
    """Tell whether a part of a run is the user's own, or has something of theirs, as a metric."""
    parts = (config.agent, config.reward, config.tasks)
    return not all(map(is_ours, parts)) or bool(own_sources(*parts))


def needs_trial(config: TrainConfig) -> bool:
    """Tell whether a part of a run is the user's own, or a role is fixed, maybe the only one."""
    return bool(config.models.fixed) or has_own_code(config)


async def try_out(
    config: TrainConfig, rollout: Rollout, say: Callable[[str], None], split: Split = "train"
) -> None:
    """Run a few episodes; refuse a run whose code fails in all of them, or that trains nothing.

    Says where the code is if it takes long.
    """
    size = config.tasks.size(split)
    count = EPISODES if size is None else max(1, min(EPISODES, size))
    tasks = [first_task(config.tasks, config.seed, split, i) for i in range(count)]
    if lacking := without_answers(config, tasks):
        say(f"note: {lacking}")
    before, rollout = held(rollout.agent), repeating(config, rollout)
    with unawaited(), noticed(say):
        groups = await rollout.groups(tasks, EPISODES // count, (config.seed, "trial"))
    episodes = [episode for group in groups for episode in group]
    if found := mistake(episodes):
        raise UserError(
            f"{found.place}: {found.kind}: {found.message} (in a trial episode)",
            fix_of(found, "correct it, then run the same command again"),
        )
    check_metrics(config, episodes)
    for note in filter(None, (changes(rollout.agent, before), changed_reward(config, rollout))):
        say(f"note: {note}")
    if early := given_early(rollout.agent, tasks[0]):
        say(f"note: {part_name(rollout.agent)} {early}")
    if split == "train":
        refuse_silent(config.models, episodes)
        if leak := in_both(config.tasks, config.seed):
            say(f"note: {leak}")


def rehearse(config: TrainConfig) -> list[str]:
    """Run an episode without a model; refuse plain mistakes, and return what may be one."""
    if not needs_trial(config):
        return []
    tokenizer = Utf8Tokenizer()
    model = Model(ScriptedPolicy(tokenizer, lambda _prompt: SAID), Renderer(tokenizer))
    own = not is_ours(config.reward)
    reward: Reward = make_reward(config, dict.fromkeys(ROLES, model)) if own else NoReward()
    rollout = Rollout(make_agent(config), dict.fromkeys(ROLES, model), reward, timeout=60)
    rollout = repeating(config, rollout)
    task = first_task(config.tasks, config.seed, "train")
    before = held(rollout.agent)
    with unawaited():
        [episodes] = Stop().run(rollout.groups([task], 1, (config.seed, "rehearsal")))
    refuse_silent(config.models, episodes)
    check_metrics(config, episodes)
    notes = [in_both(config.tasks, config.seed), changes(rollout.agent, before),
             without_answers(config, [task])]  # fmt: skip
    notes = list(filter(None, [*notes, changed_reward(config, rollout)]))
    found = mistake(episodes)
    if found is None:
        return notes
    if found.kind in PLAIN:
        what = f"{found.place}: {found.kind}: {found.message}"
        raise UserError(what, fix_of(found, "correct that line"))
    after = f"{found.place}: {found.kind}: {found.message}, after a model that says {SAID!r}"
    return [*notes, after]


def without_answers(config: TrainConfig, tasks: Sequence[Task]) -> str:
    """Refuse a reward for answers that nobody could earn; say which accuracy tells nothing."""
    for task in tasks:
        metric = config.reward.metric if isinstance(config.reward, AnswerReward) else None
        if lacking := never_right(metric, task.questions):
            raise UserError(
                f"{lacking[:40]!r} in task {task.id[:40]!r} has no accepted answer",
                "give it some, or train by a reward of your own (--reward module:name)",
            )
        if lacking := never_right(config.tasks.metric, task.questions):
            what = f"{lacking[:40]!r} in task {task.id[:40]!r} has no accepted answer"
            return f"{what}: the held-out accuracy counts it as wrong, whatever the agent says"
    return ""


def refuse_silent(models: ModelsConfig, episodes: Sequence[Episode]) -> None:
    """Refuse a run in which only fixed models speak: it would train nothing."""
    spoken = {c.role for e in episodes if e.ok for c in e.contexts if c.turns}
    learning, speaking = " and ".join(models.learning), " and ".join(sorted(spoken))
    if not spoken and all(episode.ok for episode in episodes):
        raise UserError(
            "nothing would be trained: the agent answers without asking a model",
            "let it say something in a chat: await chats.open().say(...)",
        )
    if spoken and spoken.isdisjoint(models.learning):
        raise UserError(
            f"nothing would be trained: {learning} learns, and the agent speaks as {speaking} only",
            f"set --models.{sorted(spoken)[0]} trainable, or choose another agent",
        )
