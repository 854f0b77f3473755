"""verl's agent loop around any of our agents: one row for each context that is trained."""

from __future__ import annotations

import traceback
from typing import Any

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from recollect.engines.verl.environment import NAME
from recollect.engines.verl.worker.archive import find_archive
from recollect.engines.verl.worker.policy import ServedPolicy
from recollect.engines.verl.worker.training_rows import compact, make_row, trained_contexts
from recollect.engines.verl.worker.worker import Worker, worker_of
from recollect.errors import UserError
from recollect.types import Episode, Sampling


class MemoryLoop(AgentLoopBase):
    """Run one episode for verl. It makes a new loop for every one."""

    def __init__(self, trainer_config: Any, server_manager: Any, **_verl: Any) -> None:
        # Not the base class's: it makes a renderer that an agent of ours never uses, and that
        # loses tokens between the turns of models it does not know.
        self.config = trainer_config.config
        self.rollout_config = self.config.actor_rollout_ref.rollout
        self.server_manager = server_manager

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Run the episode that a row names; return its trained contexts, the last one last."""
        archive = find_archive()
        try:
            worker = worker_of(
                str(self.config.recollect.run), int(self.rollout_config.agent.num_workers)
            )
            policy = self._policy(worker, sampling_params, row)
            episode = await self._episode(worker, policy, sampling_params, row)
            made = outputs(episode, window_of(self.rollout_config), policy.versions)
        except UserError as error:
            await archive.stop.remote(error)
            raise
        except Exception as error:
            # verl would only log it and go on without the episode: a bug that nobody sees.
            text = "".join(traceback.format_exception(error))
            await archive.stop.remote(RuntimeError(f"an episode met a bug:\n{text}"))
            raise
        await archive.put.remote(row["uid"], compact(episode), worker.failed_calls())
        return made

    async def _episode(
        self, worker: Worker, policy: ServedPolicy, params: dict[str, Any], row: dict[str, Any]
    ) -> Episode:
        return await worker.episode(
            policy,
            split=row["extra_info"]["split"],
            index=int(row["extra_info"]["index"]),
            session=int(row["session_id"]),
            step=int(row["global_steps"]),
            sampling=Sampling(temperature=params["temperature"], top_p=params["top_p"]),
            window=window_of(self.rollout_config),
        )

    def _policy(self, worker: Worker, params: dict[str, Any], row: dict[str, Any]) -> ServedPolicy:
        ours = ("temperature", "top_p", "logprobs")
        deterministic = bool(self.rollout_config.full_determinism)
        # Siblings read the same chunks: on one replica they share what is computed of them.
        name = f"{row['uid']}-{row['session_id']}" if deterministic else str(row["uid"])
        return ServedPolicy(
            self.server_manager,
            name,
            worker.renderer.tokenizer.end_ids,
            {key: value for key, value in params.items() if key not in ours},
            seeded=deterministic or self.rollout_config.name == NAME,
            unique=deterministic,
        )


def window_of(rollout: Any) -> int:
    """Return how many tokens a context may hold, prompt and replies together."""
    whole = int(rollout.prompt_length) + int(rollout.response_length)
    return min(whole, int(rollout.max_model_len)) if rollout.max_model_len else whole


def outputs(episode: Episode, window: int, versions: list[int]) -> list[AgentLoopOutput]:
    """Turn an episode into verl's rows: none for a failure of something else than the agent.

    The reward is in the last row, from where verl copies it to the others together with
    `reward_extra_info`, which must be there for it. Advantages come from the archive instead: the 0
    of a failed episode is only what verl would otherwise compute itself.
    """
    made = []
    for context in trained_contexts(episode):
        row = make_row(context, window)
        made.append(
            AgentLoopOutput(
                prompt_ids=row.prompt_ids,
                response_ids=row.response_ids,
                response_mask=row.response_mask,
                response_logprobs=row.response_logprobs,
                num_turns=2 * row.turns,
                metrics=AgentLoopMetrics(generate_sequences=episode.seconds),
                extra_fields={
                    "min_global_steps": min(versions, default=0),
                    "max_global_steps": max(versions, default=0),
                },
            )
        )
    if made:
        made[-1].reward_score = 0.0 if episode.reward is None else episode.reward
        made[-1].extra_fields["reward_extra_info"] = dict(episode.scores)
    return made
