"""The options of `recollect train` about its engine. Plain data, imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.errors import UserError

ENGINES = ("embedded", "verl")


@dataclass(frozen=True)
class EngineOptions:
    """Which engine trains, and what is only for it."""

    engine: str = "embedded"
    gpu_gib: float = 80.0
    """Memory of one GPU, for the estimates of a dry run."""
    overrides: tuple[str, ...] = ()
    """What follows `--`: verl's own settings."""
    cpu: bool = False
    """Run verl, Ray and all on this machine's CPU, to try things out."""


def split_engine(args: Sequence[str]) -> tuple[EngineOptions, list[str]]:
    """Take `--engine`, `--gpu-gib`, `--cpu` and all after `--` out of a command's arguments."""
    cut = args.index("--") if "--" in args else len(args)
    own, overrides = list(args[:cut]), _later_first(args[cut + 1 :])
    found: dict[str, str] = {}
    for flag in ("--engine", "--gpu-gib"):
        for at, text in enumerate(own):
            name, equals, value = text.partition("=")
            if name == flag:
                if not equals and at + 1 >= len(own):
                    raise UserError(f"{flag} needs a value", "such as --engine verl --gpu-gib 80")
                found[flag] = value if equals else own[at + 1]
                del own[at : at + (1 if equals else 2)]
                break
    engine = found.get("--engine", "embedded")
    if engine not in ENGINES:
        raise UserError(f"there is no engine {engine!r}", f"choose from {', '.join(ENGINES)}")
    if overrides and engine != "verl":
        raise UserError(
            "what follows -- is for verl, but verl is not the engine", "add --engine verl"
        )
    try:
        gib = float(found.get("--gpu-gib", EngineOptions.gpu_gib))
    except ValueError:
        raise UserError(f"--gpu-gib is {found['--gpu-gib']!r}", "give a number") from None
    cpu = "--cpu" in own
    if cpu and engine != "verl":
        raise UserError("--cpu is for verl; the embedded engine asks --model.device", "drop --cpu")
    own = [text for text in own if text != "--cpu"]
    return EngineOptions(engine, gib, overrides, cpu), own


def _later_first(args: Sequence[str]) -> tuple[str, ...]:
    """Put what was given to a recipe after its own settings: `-- THEIRS -- THE RECIPE'S`.

    The last of two settings of one name counts, so what was given wins.
    """
    groups: list[list[str]] = [[]]
    for text in args:
        if text == "--":
            groups.append([])
        else:
            groups[-1].append(text)
    last = {text.partition("=")[0].lstrip("+~"): text for own in reversed(groups) for text in own}
    return tuple(last.values())
