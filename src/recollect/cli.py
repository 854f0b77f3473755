"""The command line: `recollect train`, `eval`, `doctor`. Heavy imports wait until a verb needs them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence

from recollect.errors import UserError

USAGE = """recollect: train and evaluate LLM memory agents with reinforcement learning

  recollect train [PRESET] [--any.setting value]   train an agent; --dry-run shows what would be done
  recollect eval [PRESET] [--any.setting value]    measure held-out accuracy, at several lengths
  recollect doctor                                 what is installed, what is missing, the fix

  recollect train PRESET --help lists every setting. Presets: {presets}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; a user's mistake prints one message and no traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    verbs: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "eval": _eval,
        "doctor": _doctor,
    }
    try:
        if not args or args[0] in ("-h", "--help", "help"):
            from recollect.presets import PRESETS

            print(USAGE.format(presets=", ".join(PRESETS)), end="")
            return 0
        if args[0] in ("-V", "--version"):
            from recollect import __version__

            print(__version__)
            return 0
        if args[0] not in verbs:
            raise UserError(f"there is no verb {args[0]!r}", f"choose from {', '.join(verbs)}")
        return verbs[args[0]](args[1:])
    except UserError as error:
        print(f"recollect: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("recollect: stopped", file=sys.stderr)
        return 130
