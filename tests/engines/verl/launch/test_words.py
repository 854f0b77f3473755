"""What a user of the reference's scripts meets: words, epochs, order, memory, recipes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.config.presets import preset
from recollect.config.roles import ModelsConfig
from recollect.engines.verl.launch.flags import adopt
from recollect.engines.verl.launch.memory import demand
from recollect.engines.verl.launch.options import split_engine
from recollect.engines.verl.launch.shapes import find_shape
from recollect.engines.verl.launch.start import missing, plan_launch
from recollect.errors import UserError
from tests.commands.test_recipes import RECIPES, command_of
from tests.support.memagent_script import FLAGS


def test_who_learns_and_who_is_fixed_is_said_in_the_references_words():
    fixed = replace(preset("hotpotqa"), models=ModelsConfig(answer="http://h:1/v1"))
    notes = plan_launch(fixed, ["actor_rollout_ref.model.path=m"]).notes
    assert "memory: TRAINABLE m" in notes and "answer: FIXED http://h:1/v1" in notes
    assert any(note.startswith("old log-probabilities: the sampler's") for note in notes)


def test_the_references_resume_key_is_refused_with_the_new_name():
    with pytest.raises(UserError, match=r"trainer\.load_checkpoint") as caught:
        plan_launch(preset("hotpotqa"), ["trainer.load_checkpoint=/old"])
    assert "--resume" in caught.value.fix


def test_epochs_become_steps_by_the_size_of_the_data(tmp_path):
    for name in ("train.parquet", "dev.parquet"):
        pq.write_table(pa.table({"prompt": ["q"] * 100}), tmp_path / name)
    flags = [f"data.train_files={tmp_path}/train.parquet", f"data.val_files={tmp_path}/dev.parquet"]
    flags += ["data.train_batch_size=32", "trainer.total_epochs=30", "data.shuffle=False"]
    adopted = adopt(preset("hotpotqa"), flags)
    assert adopted.config.steps == 30 * 3 and adopted.config.tasks.shuffle is False
    assert any("90 steps, because 100 rows make 3 batches of 32" in n for n in adopted.notes)
    given = adopt(preset("hotpotqa"), [*flags, "trainer.total_training_steps=7"])
    assert given.config.steps == 7
    assert any("--steps decides" in note for note in adopt(preset("hotpotqa"), FLAGS).notes)


def test_the_recurrent_flag_is_memagents_own_order_and_8_chunks():
    adopted = adopt(preset("hotpotqa"), FLAGS)
    assert (adopted.config.agent.order, adopted.config.agent.max_chunks) == ("memory_first", 8)
    assert any("8 chunks" in note for note in adopted.notes)


def test_checkpoints_are_kept_as_asked():
    adopted = adopt(preset("hotpotqa"), ["trainer.max_actor_ckpt_to_keep=5"])
    assert adopted.config.keep == 5


def test_a_cache_that_is_not_freed_is_there_during_the_update():
    shape = find_shape("Qwen/Qwen2.5-0.5B-Instruct")
    key = "actor_rollout_ref.rollout.free_cache_engine"
    freed, kept = (demand(shape, {key: free}, 80e9) for free in (True, False))
    assert kept.update == freed.update + kept.sampler


def test_a_dry_run_names_what_is_missing():
    lines = missing(plan_launch(preset("hotpotqa"), FLAGS))
    assert "missing: the model Qwen/Qwen2.5-0.5B-Instruct" in lines
    assert "missing: the data /data/hotpotqa_train_32k.parquet" in lines


def test_the_recipe_is_the_script_flag_by_flag_and_passes_more_on(tmp_path):
    script = RECIPES / "memagent_seed_0.5b.sh"
    args = command_of(script, 1, tmp_path)
    assert sorted(args[args.index("--") + 1 :]) == sorted(FLAGS)
    options, _ = split_engine(command_of(script, 1, tmp_path, "--", "trainer.nnodes=2")[1:])
    assert "trainer.nnodes=2" in options.overrides and "trainer.nnodes=1" not in options.overrides
    assert len(options.overrides) == len(FLAGS)
