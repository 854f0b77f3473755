"""Where `recollect` and `python -m recollect` start: Ctrl-C works before anything is imported."""

import os
import sys

SPINS = "10000"
"""How often torch's threads look for each other before they sleep (GOMP_SPINCOUNT).

The library's own number, thirty times as high, makes a token several times slower where another
program has one of the cores: benchmarks/busy_cpu.py."""


def crash(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """Print the traceback of a bug, without the keys that a server or a file put into it."""
    import traceback

    from recollect.foreign import redact

    sys.stderr.write(redact("".join(traceback.format_exception(error))))


def unheard(failure: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that came where Python drops exceptions, such as an import's clean-up."""
    if isinstance(failure.exc_value, KeyboardInterrupt):
        import _thread

        # A moment later: here it would be dropped again.
        _thread.start_new_thread(_interrupt_soon, (_thread.get_ident(),))
    else:
        sys.__unraisablehook__(failure)


def _interrupt_soon(thread: int) -> None:
    import signal
    import time

    time.sleep(0.01)
    signal.pthread_kill(thread, signal.SIGINT)


def open_closed() -> None:
    """Open standard streams that are closed: a run's own files would get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def main() -> int:
    """Run the command line; return its exit status."""
    sys.excepthook = crash
    sys.unraisablehook = unheard
    open_closed()
    if "OMP_WAIT_POLICY" not in os.environ:  # read when torch is imported
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        here = os.getcwd()
    except OSError as error:  # neither a relative path nor torch can do without
        sys.stderr.write(f"recollect: the current folder cannot be used: {error.strerror}\n")
        sys.stderr.write("  fix: change to a folder that exists, then run the same command again\n")
        return 2
    # `python -m` looks for modules in the current folder first, and may find a user's json.py.
    if sys.path and sys.path[0] == here:
        del sys.path[0]
    try:
        import signal

        from recollect.cli import main as run

        status = run()
        # The work is done: an interrupt while Python shuts down must not change the status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return status
    except KeyboardInterrupt:
        sys.stderr.write("recollect: stopped\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
