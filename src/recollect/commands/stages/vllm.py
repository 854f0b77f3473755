"""A vLLM server of our own for the fixed model of a stage, on GPUs that Ray does not use."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recollect.commands.stages.server import running
from recollect.errors import UserError
from recollect.packaging import VLLM

MODULE = "vllm.entrypoints.openai.api_server"


@dataclass(frozen=True)
class ClusterStages:
    """How stages run on verl; the table [verl] of a file of stages."""

    overrides: tuple[str, ...] = ()
    """verl's own settings, as after `--` on the command line."""
    cpu: bool = False
    """As --cpu on the command line: everything on this machine's CPU."""
    server: Literal["vllm", "recollect"] = "vllm"
    """Who serves the fixed model; [serve] is for the latter."""
    arguments: tuple[str, ...] = ("--max-model-len", "16384")
    """Further ones of vLLM's."""
    gpus: str = ""
    """CUDA_VISIBLE_DEVICES of the server: GPUs that Ray was started without."""
    host: str = "127.0.0.1"
    """This machine's address; one that other nodes reach, where there are any."""


@contextmanager
def vllm_served(model: str, settings: ClusterStages, log: Path) -> Iterator[str]:
    """Serve a model with vLLM while the block runs; yield the server's address."""
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "the fixed model is served with vLLM, which is not installed",
            f'pip install {VLLM}, or set server = "recollect" under [verl]',
        )
    ready = log.with_suffix(".ready")
    port = free_port(settings.host)
    ready.write_text(f"http://{settings.host}:{port}/v1")
    command = [MODULE, "--model", model, "--host", settings.host, "--port", str(port)]
    environment = {"CUDA_VISIBLE_DEVICES": settings.gpus} if settings.gpus else {}
    with running([*command, *settings.arguments], ready, log, environment) as url:
        yield url


def free_port(host: str) -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
