"""Where the start of a run on the cluster goes, written by all of its processes."""

from __future__ import annotations

import argparse
import logging
import time

from benchmarks.cluster_gpu import starts
from recollect.engines.verl.environment import compile_cache
from recollect.engines.verl.start_times import VERL, begin, describe, listen, mark, read_parts


def test_parts_are_read_in_their_order_and_a_new_start_forgets_the_old(tmp_path):
    assert read_parts(tmp_path) == []
    begin(tmp_path, time.time() - 3)
    mark(tmp_path, "settings and tasks")
    mark(tmp_path, "imports")
    (first, took), (second, more) = read_parts(tmp_path)
    assert (first, second) == ("settings and tasks", "imports")
    assert 3 <= took < 10 and 0 <= more < 5
    assert describe(tmp_path).startswith("3.") and "settings and tasks 3." in describe(tmp_path)
    begin(tmp_path)
    assert read_parts(tmp_path) == []


def test_what_verl_says_ends_its_parts(tmp_path):
    begin(tmp_path)
    log = logging.getLogger(VERL)
    level, log.level = log.level, logging.INFO
    try:
        listen(tmp_path)
        log.info("worker group kwargs: {}")
        log.info("create worker group dict_keys(['actor'])")
        log.info("actor and ref model engine initialized")
        log.info("checkpoint engine manager initialized")
    finally:
        log.level = level
        log.handlers.pop()
    parts = [part for part, _seconds in read_parts(tmp_path)]
    assert parts == ["the actor's process", "the actor's model", "the sampler"]


def test_the_starts_of_several_runs_are_one_table(tmp_path):
    for name, parts in {"vllm": ["imports", "the sampler"], "own": ["imports"]}.items():
        (tmp_path / name).mkdir()
        begin(tmp_path / name, time.time() - 2)
        for part in parts:
            mark(tmp_path / name, part)
    text = starts(argparse.Namespace(out=tmp_path, only=["embedded", "vllm", "own"]))
    head, rule, imports, sampler, whole = text.splitlines()
    assert head == "| seconds to the first rollout | vllm | own |" and rule == "|---|---|---|"
    assert imports.startswith("| imports | 2.") and sampler.endswith(" |  |")
    assert whole.startswith("| in all | 2.")


def test_what_vllm_compiled_is_kept_for_the_next_start_where_torch_writes_whole_files():
    name = "VLLM_DISABLE_COMPILE_CACHE"
    assert compile_cache("2.11.0+cu130", {}) == {name: "0"}
    assert compile_cache("2.9.1", {}) == {}  # as verl has it
    assert compile_cache("2.11.0", {name: "1"}) == {name: "1"}
