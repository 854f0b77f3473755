"""The benchmark of whole steps: its texts, its reward, its table."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.loop_memory import Room, chosen_recompute, need_of
from benchmarks.whole_loop import HEAD, WAYS, Words, coin, line, run_way
from recollect.engines.verl.launch.shapes import KNOWN, Shape, find_shape
from recollect.models.tokenizer import load_tokenizer
from recollect.types import Episode


def test_texts_have_the_length_that_is_asked_for_and_rewards_differ():
    family = Words(chunks=2, words=30)
    task = family.task(3)
    assert [len(chunk.split()) for chunk in task.chunks] == [30, 30]
    assert task == family.task(3) and task.chunks != family.task(4).chunks
    assert len(family.longer(4).task(0).chunks) == 8
    episode = Episode(task=task, rollout=0)
    scores = [coin(replace(episode, answers=[answer]), None) for answer in ("w1", "w2")]
    assert {score.reward for score in scores} == {0.0, 1.0}
    assert all(score.parts["reward_seconds"] > 0 for score in scores)


def test_a_step_is_laid_out_by_phase_beside_what_memagent_published():
    row = {"step": 2, "time/rollout": 100.0, "time/update": 99.0, "time/sync": 1.0,
           "tokens/sampled": 400_000, "score/reward_seconds": 1e-5}  # fmt: skip
    text = line(argparse.Namespace(tasks=8, group=16), "chunk_first", row, "42")
    assert text == (
        "| chunk_first | 2 | 42 | 100.0 | 0.001280 | 99.0 | 1.0 | 200.0 | 4,000 | 25.0 | 24.0x |"
    )
    assert text.count("|") == HEAD.splitlines()[0].count("|") == HEAD.splitlines()[1].count("|")


def settings(**more: object) -> argparse.Namespace:
    usual = {"weights": "bfloat16", "cache_gib": 30.0, "token_budget": 22_000, "recompute": 0.0,
             "compile": True, "ways": list(WAYS)}  # fmt: skip
    return argparse.Namespace(**usual | more)


def test_the_seven_b_is_planned_to_fit_into_an_h200_with_room_to_spare():
    seven, machine = KNOWN["Qwen2.5-7B"], Room(gpu=139.0, host=128.0, shared=32.0)
    share = chosen_recompute(settings(), seven, machine)
    assert 0.5 <= share <= 1.0
    for way in WAYS:
        need = need_of(settings(recompute=share), seven, way)
        assert not need.lacks(machine) and need.gpu < 126, way
        # Nothing recomputed would not fit; nor would Adam's averages beside the rest.
        assert need_of(settings(recompute=0.0), seven, way).lacks(machine) == ["the GPU"]
        assert need.gpu + need.host > machine.gpu
    assert chosen_recompute(settings(), KNOWN["Qwen2.5-1.5B"], machine) < share
    # Half of the layers, not compiled, ended at the GPU's last byte.
    plain = need_of(
        settings(recompute=0.5, compile=False, ways=["chunk_first"]), seven, "chunk_first"
    )
    assert plain.gpu > 139.0


def test_a_machine_that_is_too_small_is_told_by_what_it_lacks():
    need = need_of(settings(recompute=1.0), KNOWN["Qwen2.5-7B"], "vllm")
    small = Room(gpu=80.0, host=96.0, shared=0.06)
    assert need.lacks(small) == ["the GPU", "the host", "/dev/shm"]
    assert "left out, too small: the GPU, the host, /dev/shm" in need.text(small)
    assert need.text(Room()).endswith("fits")
    here = Room.here(141.0)
    assert here.gpu == 141.0 and here.host > 0.5 and here.shared >= 0


def test_a_tiny_model_runs_a_way_prints_each_step_and_names_one_that_ended(tmp_path, capfd):
    model = tiny(tmp_path / "model")
    given = argparse.Namespace(
        model=model, out=tmp_path, steps=1, tasks=2, group=2, chunks=2, words=20, memory=4,
        answer=4, token_budget=512, recompute=0.0, compile=False,
        cache_gib=0.05, minutes=2.0, weights="float32",
        more=["--model.device", "cpu", "--model.threads", "1"],
    )  # fmt: skip
    shape = find_shape(str(model))
    capfd.readouterr()
    assert run_way(given, "ahead", shape)
    shown = capfd.readouterr().out.splitlines()
    assert len(shown) == 2 and shown[0].startswith("| ahead | 1 | ")
    assert shown[1].startswith("figure | GPU seconds per prompt, ahead | ")
    assert float(shown[0].split("|")[5]) > 0  # seconds of the reward
    given.more = ["--nowhere"]
    assert not run_way(given, "memory_first", shape)
    said = capfd.readouterr()
    assert "| memory_first | ended after 0 steps: " in said.out and "nowhere" in said.err


def test_made_up_words_are_a_token_each(tmp_path):
    tokenizer = load_tokenizer(tiny(tmp_path))
    assert len(tokenizer.encode(Words(1, 30, 593).task(0).chunks[0])) == 30


def tiny(folder: Path) -> Path:
    """Make a model with the script that makes large ones."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
    try:
        from make_random_model import make
    finally:
        sys.path.pop(0)
    make(Shape(32, 2, 2, 1, 16, 64, 600, True, 2048), folder, "cpu")
    return folder
