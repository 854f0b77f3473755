"""verl's synchronous trainer with our episodes in it.

Rollout, log-probabilities, update and checkpoints are verl's. Ours are: advantages over whole
episodes, mini-batches along groups, validation, and the run folder that all our tools read.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from recollect.engines.verl import start_times
from recollect.engines.verl.run.folder import RunFolder
from recollect.engines.verl.stop import Stopped, asked
from recollect.engines.verl.trainer import loss, minibatches
from recollect.engines.verl.trainer.record import Record
from recollect.engines.verl.worker.archive import Taken, open_archive
from recollect.engines.verl.worker.training_rows import trained_contexts
from recollect.errors import UserError
from recollect.foreign import shown
from recollect.rollout import Group
from recollect.train import metrics as report
from recollect.train.comparison import charge, compare
from recollect.train.failures import refuse_dead, refuse_silent, refuse_unmeasured
from recollect.train.loss import DIVERGENCES, aggregate_of
from recollect.types import Sample


class MemoryTrainer(PPOTrainerSync):
    """Train agents on episodes of several contexts each."""

    def __init__(self, config: Any) -> None:
        self.run = Path(config.recollect.run)
        self.settings = RunFolder(self.run).config
        loss.refuse(self.settings.loss)
        if self.settings.advantage == "gae":
            raise UserError(
                "only the embedded engine has a critic",
                "set --advantage to grpo, or --engine embedded",
            )
        self.archive = open_archive()
        self.record: Record | None = None
        self._submitted: list[str] = []
        self._groups: list[Group] = []
        self._parts: list[list[int]] = []
        self._training = self._stopping = self._sampled = self._stepped = False
        super().__init__(config)
        self.replay_buffer.poll_interval = float(config.recollect.poll_seconds)
        start_times.mark(self.run, "the queue")
        start_times.listen(self.run)

    # --- start -------------------------------------------------------------------------------

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        learning = self.settings.models.learning

        def decode(role: str, ids: Sequence[int]) -> str:
            """Return the text of the model that learns; those of servers have other tokens."""
            return str(self.tokenizer.decode(ids)) if role in learning else ""

        self.record = Record.open(self.run, self.settings, self.global_steps, decode)
        if self.global_steps:
            with open_dict(self.config):  # it was measured when the run began
                self.config.trainer.val_before_train = False
        if not loss.is_native(self.settings.loss):
            remembers = self.settings.epochs > 1 or self.settings.loss.tis_cap > 0
            ours = partial(loss.ours, config=self.settings.loss, remembers=remembers)
            self.actor_rollout_wg.set_loss_fn(ours)

    def on_init_end(self) -> None:
        super().on_init_end()
        start_times.mark(self.run, "the sampler's weights")

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self._training = True

    def _first_rollout(self) -> None:
        """Say how long the start took, once."""
        if not self._sampled:
            self._sampled = True
            start_times.mark(self.run, "the agents' processes")
            print(shown(f"recollect: {start_times.describe(self.run)}"), flush=True)

    # --- rollout -----------------------------------------------------------------------------

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        self._first_rollout()
        self._submitted += [str(uid) for uid in batch["uid"]]
        return super()._submit_batch_to_rollout(batch)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        """Run one step, and save it if the run is to stop; an empty batch says why."""
        # Asked between two steps, it makes one more: that is saved where there is memory for it.
        if asked(self.run) and not self._stepped:
            raise Stopped  # before anything was trained: there is nothing to save
        self._submitted = []
        try:
            batch = super().step(metrics, timing_raw)
        except RuntimeError:
            groups = self._take(self._submitted).groups
            if any(groups):
                when = f"step {self.global_steps}"
                refuse_dead(groups, when)
                refuse_silent(groups, self.settings.models.learning, when)
            raise
        self._stepped = True
        self._stopping = asked(self.run)
        trainer, step = self.config.trainer, self.global_steps
        due = trainer.save_freq > 0 and step % trainer.save_freq == 0
        if self._stopping and not due and step < self.total_training_steps:
            self._save_checkpoint()  # here, where verl does: its samplers hold no memory now
        return batch

    def _take(self, uids: Sequence[str]) -> Taken:
        taken: Taken = ray.get(self.archive.take.remote(list(uids)))
        return taken

    # --- mini-batches ------------------------------------------------------------------------

    @property
    def _updates(self) -> int:
        return self.settings.updates_per_step

    def _balance_batch(
        self, batch: Any, metrics: dict[str, Any], *_args: Any, **_kwargs: Any
    ) -> Any:
        """Give every process equally many rows of every mini-batch, filled up with padding."""
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        ranks = max(group._dispatch_info["actor"]) + 1
        own = len(batch.keys)
        uids = [key.rsplit("_", 2)[0] for key in batch.keys]
        parts = minibatches.cut(uids, self._submitted, self._updates)
        total = minibatches.needed(parts, ranks)
        batch = upsample_batch_to_divisible_size(batch, total, self.tokenizer.eos_token_id)
        sizes = [tag["seq_len"] for tag in batch.tags]
        order = minibatches.arrange(parts, range(own, total), sizes, ranks, deal)
        place = {row: at for at, row in enumerate(order)}
        batch.reorder(order)
        self._parts = [[place[row] for row in part] for part in parts]
        metrics["samples/padding"] = total - own
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Take exactly as many optimiser steps as configured, whatever the number of rows."""
        actor = self.config.actor_rollout_ref.actor
        batch.extra_info.update(
            calculate_entropy=bool(actor.calculate_entropy or actor.entropy_coeff),
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=len(batch) // self._updates,
            mini_batch_size=None,
            num_mini_batch=self._updates,
            epochs=self.settings.epochs,
            seed=actor.data_loader_seed,
            dataloader_kwargs={"shuffle": False},
            temperature=self.config.actor_rollout_ref.rollout.temperature,
        )
        output = self.actor_rollout_wg.update_actor(batch)
        found = rename_dict(output["metrics"], "actor/")
        found["perf/mfu/actor"] = found.pop("actor/mfu")
        metrics.update(reduce_metrics(found))
        metrics["train/updates"] = self._updates * self.settings.epochs
        return batch

    # --- advantages --------------------------------------------------------------------------

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Compare episodes as the embedded engine does, and spread the result over the rows.

        verl's own runs first: it also computes what corrects for a sampler that differs.
        """
        batch = super()._compute_advantage(batch, metrics)
        taken = self._take(self._submitted)
        names, self._groups = self._submitted, taken.groups
        metrics |= report.call_metrics(taken.failed_calls)
        fields = ["response_mask", "rollout_log_probs", "ref_log_prob"]
        rows = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=fields
        )
        groups, charges = charge(
            self.settings, partial(self._divergences, batch.keys, names, rows), self._groups
        )
        compared = compare(self.settings, groups)
        failed = self.settings.rollout.failure_reward
        metrics |= {**report.episode_metrics(self._groups, failed), **charges}
        metrics |= counts(groups)
        value_B = spread(batch.keys, names, groups, compared)
        return self._write(batch, rows["response_mask"], value_B)

    def _write(self, batch: Any, mask: torch.Tensor, value_B: Sequence[float]) -> Any:
        """Put advantages into the rows; return the batch, which names all that workers fetch."""
        own = [own.float() * value for own, value in zip(mask.unbind(), value_B, strict=True)]
        fields = {"advantages": own, "returns": own}
        if not loss.is_native(self.settings.loss):
            trained_B = np.array([int(m.sum()) for m in mask.unbind()])
            sessions = [key.rsplit("_", 1)[0] for key in batch.keys]
            _, episode_B = np.unique(sessions, return_inverse=True)
            weigh = aggregate_of(self.settings.loss)
            weight_B = loss.row_weights(weigh, trained_B, episode_B, self._parts)
            fields[loss.WEIGHTS] = [
                m.float() * float(w) for m, w in zip(mask.unbind(), weight_B, strict=True)
            ]
        nested = {
            name: torch.nested.as_nested_tensor(rows, layout=torch.jagged)
            for name, rows in fields.items()
        }
        return tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict(nested, batch_size=len(batch)),
        )

    def _divergences(
        self, keys: Sequence[str], names: Sequence[str], rows: Any, samples: Sequence[Sample]
    ) -> list[float]:
        """Sum every sample's KL to the reference; samples are the rows in the groups' order."""
        estimate = DIVERGENCES[self.settings.loss.kl]
        found = {}
        for key, mask, own, ref in zip(
            keys, *(rows[name].unbind() for name in ("response_mask", "rollout_log_probs",
                                                     "ref_log_prob")), strict=True
        ):  # fmt: skip
            at = mask.bool()
            found[key] = float(estimate(own[at], ref[at]).sum())
        ordered = [
            found[f"{uid}_{episode.rollout}_{i}"]
            for uid, group in zip(names, self._groups, strict=True)
            for episode in group
            for i in range(len(trained_contexts(episode)))
        ]
        if len(ordered) != len(samples):
            raise RuntimeError(f"{len(ordered)} rows, but {len(samples)} samples")
        return ordered

    # --- validation --------------------------------------------------------------------------

    def _validate(self) -> dict[str, float]:
        """Measure held-out tasks by episode; verl's own counts rows, and passes over failures."""
        self._first_rollout()
        groups: list[Group] = []
        for rows in self.val_dataloader:
            count = len(rows["raw_prompt"])
            uids = [str(uuid.uuid4()) for _ in range(count)]
            rows["uid"] = np.array(uids, dtype=object)
            batch = tu.get_tensordict(rows)
            tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
            tu.assign_non_tensor_data(batch, "validate", True)
            tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
            tq.kv_batch_put(keys=uids, partition_id="val", tags=[dict(tag) for _ in uids])
            self.agent_loop_manager.generate_sequences(batch)
            done, _ = self.replay_buffer.sample(
                global_steps=self.global_steps, partition_id="val", batch_size=count
            )
            groups += self._take(uids).groups
            if done.keys:
                tq.kv_clear(keys=done.keys, partition_id=done.partition_id)
        refuse_unmeasured(groups, f"the validation after step {self.global_steps}")
        assert self.record is not None
        metrics = self.record.validated(self.global_steps, groups)
        if not self._training:
            self.record.log(self.global_steps, metrics)
        return metrics

    # --- report ------------------------------------------------------------------------------

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], **kwargs: Any
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, **kwargs)
        assert self.record is not None
        self.record.step(self.global_steps, metrics, timing_raw, self._groups)
        if self._stopping and self.global_steps < self.total_training_steps:
            raise Stopped


def counts(groups: Sequence[Group]) -> dict[str, float]:
    """Count what goes into an update, as `report.sample_metrics` does, without making samples."""
    learning = [c for group in groups for episode in group for c in trained_contexts(episode)]
    return {
        "samples/total": len(learning),
        "tokens/trained": sum(len(turn.token_ids) for c in learning for turn in c.turns),
        "tokens/rows": sum(context.turns[-1].end for context in learning),
    }


def deal(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    """Deal rows to ranks: equally many, and nearly as much work for each."""
    work = calculate_workload(torch.tensor(sizes, dtype=torch.int64))
    dealt: list[list[int]] = get_seqlen_balanced_partitions(
        work, k_partitions=ranks, equal_size=True
    )
    return dealt


def spread(
    keys: Sequence[str],
    names: Sequence[str],
    groups: Sequence[Group],
    advantages: Sequence[Sequence[Sequence[float]]],
) -> list[float]:
    """Give every row the advantage of its context, and padding 0.

    verl's key of a row is `uid_session_index`, the index counting an episode's trained contexts.
    """
    found: dict[str, float] = {}
    for uid, group, compared in zip(names, groups, advantages, strict=True):
        for episode, own in zip(group, compared, strict=True):
            learning = [
                value
                for context, value in zip(episode.contexts, own, strict=True)
                if episode.counts and context.trainable and context.turns
            ]
            found |= {f"{uid}_{episode.rollout}_{i}": value for i, value in enumerate(learning)}
    return [found[key] if key in found or not key.startswith("pad") else 0.0 for key in keys]
