"""From hydra's configuration to a finished run: Ray, verl's task runner, our trainer, export."""

from __future__ import annotations

import os
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import hydra
import ray
from omegaconf import DictConfig, open_dict
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import RayError, RayTaskError
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

from recollect.engines.verl import start_times
from recollect.engines.verl.environment import (
    HANDED_ON,
    INTERPRETER,
    compile_cache,
    key_names,
    tracker_variables,
)
from recollect.engines.verl.lost import WatchedRunner
from recollect.engines.verl.run.folder import RunFolder
from recollect.engines.verl.stop import Stopped
from recollect.engines.verl.trainer.merge import export
from recollect.errors import UserError


class Runner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's task runner, with our trainer in the place of its synchronous one.

    Under a name of its own verl would treat it as an asynchronous one, in half a dozen places.
    """

    keys: ClassVar[dict[str, str]] = {}
    tracked: ClassVar[dict[str, str]] = {}
    """Environment variables for the trackers, which are opened in this process."""

    def run(self, config: DictConfig) -> None:
        """Train to the end."""
        # Here alone: the process that starts this one needs none of it, and waits for its imports.
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

        from recollect.engines.verl.trainer.trainer import MemoryTrainer
        from recollect.engines.verl.worker.broker import end_run, open_broker

        os.environ.update(self.tracked)
        TRAINER_REGISTRY["sync"] = MemoryTrainer
        name = str(config.recollect.run)
        start_times.mark(Path(name), "Ray and the trainer's process")
        end_run(name)  # what a run of this folder that was killed left open
        if self.keys:
            ray.get(open_broker().keep_keys.remote(name, self.keys))
        try:
            super().run(config)
        finally:
            end_run(name)  # Ray ends its workers before they could tell of themselves


@hydra.main(  # type: ignore[untyped-decorator]
    config_path=".", config_name="recollect", version_base=None
)
def run(config: DictConfig) -> None:
    """Train, then write the model as Hugging Face's libraries and vLLM load it."""
    refuse(config)
    start_times.mark(Path(config.recollect.run), "imports")
    auto_set_device(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    hand_on(config)
    runner = WatchedRunner(ray.remote(num_cpus=1)(with_keys(Path(config.recollect.run))))
    try:
        run_ppo(config, runner)
    except RayError as error:
        if isinstance(error, Stopped):  # Ray's exceptions are also of the class that they carry
            raise Stopped from None
        cause = mistake(error) or runner.explain(error)
        if cause is None:
            raise
        raise cause from None
    finally:
        runner.close()
        ray.shutdown()
    run_folder = RunFolder(Path(config.recollect.run))
    alpha = run_folder.config.model.lora.alpha
    export(Path(config.trainer.default_local_dir), run_folder.path / "model", alpha)


def refuse(config: DictConfig) -> None:
    """Refuse what of verl does not take episodes of several contexts."""
    if config.trainer.v1.trainer_mode != "sync" or not config.trainer.use_v1:
        raise UserError(
            "Recollect extends verl's synchronous trainer (V1)",
            "leave trainer.use_v1 and trainer.v1.trainer_mode as they are",
        )
    if config.distillation.enabled:
        raise UserError(
            "verl asks a teacher about the last context of an episode alone",
            "leave distillation.enabled as it is",
        )


def hand_on(config: DictConfig) -> None:
    """Let workers on other nodes have the environment that they need.

    Ray's dashboard and verl's output show it, so servers' keys go another way: see `with_keys`.
    """
    given = {name: os.environ[name] for name in HANDED_ON if os.environ.get(name)}
    given |= compile_cache(version("torch"), os.environ)
    with open_dict(config):
        environment: Any = config.ray_kwargs.ray_init.get("runtime_env") or {}
        environment = {**environment, "env_vars": {**given, **environment.get("env_vars", {})}}
        if INTERPRETER in os.environ and may_fork(config):
            environment["py_executable"] = shlex.quote(os.environ[INTERPRETER])
        config.ray_kwargs.ray_init.runtime_env = environment


def may_fork(config: DictConfig) -> bool:
    """Tell whether a run's processes can be forked from the warm one.

    All of them have to be on this machine, where the run starts Ray itself, and none may have an
    environment of its own.
    """
    given = config.ray_kwargs.ray_init
    own = ("py_executable", "env_vars", "pip", "uv", "conda", "container", "image_uri")
    runtime = given.get("runtime_env") or {}
    if not config.recollect.warm or any(runtime.get(name) for name in own):
        return False
    address, folder = given.get("address"), given.get("_temp_dir")
    return address != "auto" and canonicalize_bootstrap_address(address, folder) is None


def with_keys(run: Path) -> type[Runner]:
    """Return the runner with the keys of a run's servers, kept for the workers, and of trackers.

    They travel inside the class, which Ray passes on and shows nowhere.
    """
    config = RunFolder(run).config
    keys = {name: os.environ[name] for name in key_names(config) if os.environ.get(name)}
    tracked = tracker_variables(config)
    return type("RunnerWithKeys", (Runner,), {"keys": keys, "tracked": tracked})


def mistake(error: BaseException | None) -> UserError | None:
    """Find a user's mistake in what Ray raised, however deep."""
    while error is not None:
        if isinstance(error, UserError) and not isinstance(error, RayTaskError):
            return UserError(error.what, error.fix)
        # Ray's own exceptions are also of the class of what they carry, without its contents.
        error = getattr(error, "cause", None) or error.__cause__
    return None
