"""Where `recollect` and `python -m recollect` start: Ctrl-C works before anything is imported."""

import sys


def main() -> int:
    """Run the command line; return its exit status."""
    try:
        from recollect.cli import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("recollect: stopped\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
