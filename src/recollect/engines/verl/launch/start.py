"""A run on the cluster: from our settings to verl's, and its start."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from recollect import files as disk
from recollect.config.roles import ROLES
from recollect.config.sources import keep_replaced
from recollect.config.stored import is_begun, own_sources, refuse_other_code
from recollect.config.train import TrainConfig
from recollect.engines.verl import start_times, stop
from recollect.engines.verl.environment import PACKED
from recollect.engines.verl.launch.flags import Inputs, adopt
from recollect.engines.verl.launch.shapes import Shape, find_shape
from recollect.engines.verl.launch.translate import (
    ACTOR,
    MODEL,
    ROLLOUT,
    Keys,
    merged,
    name_of,
    resolved,
    translate,
    written,
)
from recollect.engines.verl.run.folder import placed, prepare
from recollect.engines.verl.worker.bases import SHARED_MEMORY, sweep
from recollect.errors import UserError
from recollect.foreign import shown
from recollect.packaging import install
from recollect.runs.stopping import heard, status_of
from recollect.runs.trackers import tracker_environment
from recollect.sampler.vllm_graphs import graph_sizes
from recollect.train.wiring import ask_servers

ENTRY = "recollect.engines.verl.main"
LENGTHS = (
    "val.lengths and val.distractors: not measured on a cluster; afterwards, on one GPU:"
    " recollect eval PRESET --model.path {run}/model"
)
ASKED = "{}: stopping after this step, saved; again to stop at once"
DASHBOARD = "ray_kwargs.ray_init.include_dashboard"
QUEUE = "transfer_queue.backend.SimpleStorage"
SEQUENCES = 256
"""What vLLM continues at once; verl's own default."""
NEEDED = ("verl", "ray", "transfer_queue")
ATTENTION = f"{MODEL}.override_config.attn_implementation"
ULYSSES = f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"


@dataclass(frozen=True)
class Launch:
    """Everything that is decided before anything starts."""

    config: TrainConfig
    run: Path
    keys: Keys
    """All of verl's keys that are set, the user's over ours."""
    arguments: tuple[str, ...]
    """Arguments of the entry point."""
    shape: Shape | None
    inputs: Inputs = field(default_factory=dict)
    """Files of MemAgent's rows that become the tasks, by split."""
    notes: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The module that is run, and its arguments."""
        return [ENTRY, *self.arguments]

    @property
    def shown(self) -> str:
        """The same for people: one override to a line."""
        lines = [f"python -m {ENTRY}", *(shlex.quote(text) for text in self.arguments)]
        return " \\\n    ".join(lines)


def plan_launch(config: TrainConfig, overrides: Sequence[str]) -> Launch:
    """Decide verl's settings; `overrides` are verl's own and win."""
    adopted = adopt(config, overrides)
    config = placed(adopted.config)
    run = config.folder / config.name
    shape = find_shape(config.model.path)
    keys = translate(config, run, shape.window if shape else None)
    sizes = {"data.max_prompt_length", "data.max_response_length"}
    if sizes & {name_of(text) for text in adopted.overrides}:
        # A window that was given decides how much a server holds.
        whole = resolved(keys, adopted.overrides)
        keys[f"{ROLLOUT}.max_model_len"] = sum(int(whole[name]) for name in sizes)
    keys |= packed_attention(adopted.overrides)
    keys |= short_start(keys, adopted.overrides)
    arguments = tuple(merged(keys, adopted.overrides))
    found = resolved(keys, adopted.overrides)
    notes = (
        *speakers(config),
        *adopted.notes,
        old_log_probs(found),
        *config.notes,
        *([LENGTHS.format(run=run)] if config.val.lengths or config.val.distractors else []),
    )
    return Launch(config, run, found, arguments, shape, adopted.inputs, notes)


def speakers(config: TrainConfig) -> list[str]:
    """Say who learns and who stays as it is."""
    models = config.models
    return [
        f"{role}: TRAINABLE {config.model.path}"
        if role in models.learning
        else f"{role}: FIXED {getattr(models, role)}"
        for role in ROLES
    ]


def old_log_probs(keys: Keys) -> str:
    """Say what ratios are taken against."""
    bypassed = keys.get("algorithm.rollout_correction.bypass_mode")
    whose = "the sampler's" if bypassed else "the actor's, computed again before the update"
    return f"old log-probabilities: {whose} (algorithm.rollout_correction.bypass_mode={bypassed})"


def missing(plan: Launch) -> list[str]:
    """Name what a run would not find: its model, and the files of its data."""
    path = plan.config.model.path
    found = [] if (Path(path) / "config.json").is_file() else [f"missing: the model {path or '?'}"]
    files = [file for paths in plan.inputs.values() for file in paths]
    return found + [f"missing: the data {file}" for file in files if not file.is_file()]


def check_keys(plan: Launch) -> None:
    """Compose the whole configuration where verl is installed; refuse keys it does not have."""
    found = importlib.util.find_spec("verl")
    if found is None or importlib.util.find_spec("hydra") is None:
        return
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    # As a folder: verl as a package would be imported, with all that it needs.
    verl = next(iter(found.submodule_search_locations or [""]))
    folder = f"file://{Path(verl, 'trainer', 'config')}"  # as it is: hydra decodes no %20
    where = f"hydra.searchpath={written([folder])}"
    try:
        with initialize_config_dir(str(Path(__file__).parents[1]), version_base=None):
            compose("recollect", [*plan.arguments, where])
    except HydraException as error:
        first = str(error.__cause__ or error).strip().splitlines()[0]
        raise UserError(
            f"the installed verl refuses the configuration: {first}",
            "correct what follows --, or write +KEY=VALUE for a key that verl passes on unseen",
        ) from None


def packed_attention(overrides: Sequence[str]) -> Keys:
    """Choose our packed attention where verl's default, flash-attn, is not installed."""
    given = {name_of(text) for text in overrides}
    if {ATTENTION, ULYSSES} & given or importlib.util.find_spec("flash_attn") is not None:
        return {}
    return {f"+{ATTENTION}": PACKED}


def short_start(keys: Keys, overrides: Sequence[str]) -> Keys:
    """Choose what starts sooner: graphs for the sequences that there are, and fewer processes.

    vLLM's own choice has 51 sizes, up to twice as many sequences as it takes. verl's own choice is
    eight processes that run agents and eight that keep rows, each with its imports; one GPU does
    not keep them busy, and two of the latter for each node are what their authors recommend. The
    dashboard of a Ray that the run starts itself is gone before anybody could look at it.
    """
    whole = resolved(keys, overrides)
    nodes = whole.get("trainer.nnodes", 1)
    each = whole.get("trainer.n_gpus_per_node", 8)
    sequences = whole.get(f"{ROLLOUT}.max_num_seqs", SEQUENCES)
    if not all(isinstance(number, int) for number in (nodes, each, sequences)):
        return {}  # null, or what hydra puts in later: verl's own choice
    gpus = nodes * each
    given = {name_of(text) for text in overrides}
    return {
        **({} if DASHBOARD in given else {f"+{DASHBOARD}": False}),
        f"{ROLLOUT}.max_num_seqs": sequences,
        f"{ROLLOUT}.cudagraph_capture_sizes": graph_sizes(sequences),
        f"{ROLLOUT}.agent.num_workers": min(8, 2 * gpus),
        f"{QUEUE}.num_data_storage_units": 2 * nodes,
    }


def check_installed() -> None:
    """Refuse to start where verl is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"--engine verl needs {', '.join(missing)}, which this environment does not have",
            "verl's pins differ from ours: make an environment of its own with `make verl-env`, or"
            f" {install('verl')} in one, and run the same command there",
        )


def check_model(path: str) -> None:
    """Refuse a name that is not a folder: every node must find the same weights."""
    if not (Path(path) / "config.json").is_file():
        raise UserError(
            f"there is no model in {path!r}" if path else "no model is named",
            f"hf download {path or 'NAME'} --local-dir FOLDER on a disk that all nodes see, then"
            " --model.path FOLDER (a dry run needs only the name)",
        )


def check_checkpoint(path: Path, run: Path) -> None:
    """Refuse to continue from what this run did not write: verl unpickles it, which runs code."""
    own = (run / "checkpoints").resolve()
    if path.resolve().parent != own or not path.name.startswith("global_step_"):
        raise UserError(
            f"{path} is no checkpoint of this run, and verl runs what other files tell it to",
            f"name a folder {own}/global_step_N; to start from the weights of another run, set"
            " --model.path to its folder model",
        )
    if not path.is_dir():
        raise UserError(f"there is no checkpoint {path}", f"see what {own} holds")


def launch(plan: Launch, more: Mapping[str, str] | None = None) -> int:
    """Write the run's folder, start verl and wait for it; return its exit status."""
    began = time.time()
    check_installed()
    check_model(plan.config.model.path)
    check_keys(plan)
    ask_servers(plan.config)
    for note in write_folder(plan, began):
        print(shown(note), file=sys.stderr, flush=True)
    stop.forget(plan.run)
    try:
        tracked = tracker_environment(plan.config.trackers, plan.run, plan.config.tracking)
        given = environment() | tracked | dict(more or {})
        status = wait_for(plan.command, given, plan.run)
        return status_of(signal.SIGTERM) if status == stop.STATUS else status
    finally:
        stop.forget(plan.run)
        sweep(SHARED_MEMORY)  # Ray ends workers before they could clean up


def wait_for(module: Sequence[str], env: Mapping[str, str], run: Path) -> int:
    """Run a module to its end, which also comes if this process is killed; return its status.

    The first signal to stop asks the run to save after its step, the second one interrupts it, and
    any further one kills it. In a process group of its own it hears nothing of a terminal's Ctrl-C.
    """
    numbers: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def hear(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        if len(numbers) == 1:
            stop.ask(run)
            print(shown(ASKED.format(signal.Signals(number).name)), file=sys.stderr, flush=True)
        elif started and len(numbers) == 2:
            started[0].send_signal(signal.SIGINT)
        elif started:
            os.killpg(started[0].pid, signal.SIGKILL)

    reading, writing = os.pipe()  # its writing end is ours alone: see runs.child
    command = [sys.executable, "-P", "-m", "recollect.runs.child", str(reading), *module]
    try:
        with heard(hear):
            started.append(subprocess.Popen(command, env=env, process_group=0, pass_fds=(reading,)))
            status = started[0].wait()
    finally:
        os.close(reading)
        os.close(writing)
    if numbers and status:
        return status_of(numbers[0])
    return status if status >= 0 else status_of(-status)


def write_folder(plan: Launch, began: float | None = None) -> list[str]:
    """Write settings, tasks and rows, not under a run that is under way; say what was left out."""
    began = time.time() if began is None else began
    disk.make_folder(plan.run)
    with disk.lock(plan.run):
        notes = _write_folder(plan)
        start_times.begin(plan.run, began)
        start_times.mark(plan.run, "settings and tasks")
        return notes


def _write_folder(plan: Launch) -> list[str]:
    notes: list[str] = []
    if plan.config.resume == "never" and (plan.run / "config.json").exists():
        raise UserError(
            f"{plan.run} already holds a run, and nothing is ever overwritten",
            f"continue it (resume auto), choose another run folder, or delete {plan.run}",
        )
    if plan.config.resume not in ("auto", "never"):
        check_checkpoint(Path(plan.config.resume), plan.run)
    if plan.inputs:
        from recollect.tasks.documents.memagent import MemAgentRows, build_memagent

        tasks = plan.config.tasks
        assert isinstance(tasks, MemAgentRows)
        if not (tasks.folder / "manifest.json").exists():
            made = build_memagent(plan.inputs, tasks.folder)
            notes = [f"left out of training: {n:,} rows, {why}" for why, n in made.dropped.items()]
    refuse_other_code(plan.config, plan.run)
    if is_begun(plan.run):
        notes += keep_replaced(own_sources(plan.config), plan.run)
    prepare(plan.config, plan.run)
    return notes


def environment() -> dict[str, str]:
    """Let verl's processes import what we imported, installed or not."""
    here = str(Path(__file__).parents[4])
    path = dict.fromkeys([here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}
