"""The warm process: what is run through it behaves as in an interpreter of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.engines.verl.warm import server
from recollect.engines.verl.warm.job import job_of
from recollect.engines.verl.warm.start import warmed


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "imported_early.py").write_text("opened = open(__file__)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        with warmed(["imported_early", "is_not_there", "numpy"]) as script:
            yield script


def run(script: Path, *arguments: str, **given: object) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 60} | given
    return subprocess.run([script, *arguments], **options)  # type: ignore[call-overload,no-any-return]


def both(script: Path, *arguments: str, **given: object) -> tuple[object, object]:
    """Return what the warm process and a real interpreter make of the same arguments."""
    found = (run(Path(each), *arguments, **given) for each in (str(script), sys.executable))
    warm, real = ((r.returncode, r.stdout, r.stderr.splitlines()[-1:]) for r in found)
    return warm, real


def is_forked(script: Path) -> bool:
    asked = "import sys; print('imported_early' in sys.modules)"
    return run(script, "-c", asked).stdout == "True\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import sys, os; print(sys.argv, os.getcwd(), repr(sys.path[0]))", "a b", "-c"),
        ("-u", "-X", "dev", "-Wignore", "-c", "import sys; print(sys.argv)", "x"),
        ("-I", "-c", "import sys; print('' in sys.path)"),
        ("-m", "base64", "-t"),
        ("-c", "import sys; sys.exit(7)"),
        ("-c", "import sys; sys.exit('said')"),
        ("-c", "1 / 0"),
        ("-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
        ("-c", "import os; os._exit(3)"),
        ("-c", "import atexit; atexit.register(print, 'at the end'); print('first')"),
        ("-c", "import sys; print(sys.stdin.read().upper())"),
        ("-c", "import os; print(os.environ['GIVEN'], os.environ.get('OMP_NUM_THREADS'))"),
        ("-c", "import signal; print([signal.getsignal(n) for n in (2, 15, 17)])"),
        ("-c", "import os; print(sorted(os.listdir('/proc/self/fd'))[:3])"),
        ("--version",),
    ],
)
def test_it_does_what_an_interpreter_does(interpreter, tmp_path, arguments):
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    given = {"cwd": tmp_path, "env": environment | {"GIVEN": "gïven"}}
    warm, real = both(interpreter, *arguments, input="hello", **given)
    assert warm == real
    assert is_forked(interpreter)


def test_a_file_is_run_as_a_script_with_its_folder_first(interpreter, tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    (tmp_path / "script.py").write_text(
        "import sys, beside\nprint(__name__, __file__, sys.argv, sys.path[0], beside.NAME)"
    )
    warm, real = both(interpreter, str(tmp_path / "script.py"), "--flag", "-x")
    assert warm == real


def test_files_that_are_passed_keep_their_numbers(interpreter):
    reading, writing = os.pipe()
    high = 300
    os.dup2(writing, high)
    code = f"import os; os.write({high}, b'through the pipe')"
    run(interpreter, "-c", code, pass_fds=(high,))
    os.close(writing)
    os.close(high)
    assert os.read(reading, 100) == b"through the pipe"
    assert os.read(reading, 100) == b""  # nobody else holds it
    os.close(reading)


def test_what_multiprocessing_spawns_is_a_fork_as_well(interpreter, tmp_path):
    (tmp_path / "script.py").write_text(
        "import multiprocessing, sys\n"
        "def look(queue): queue.put('imported_early' in sys.modules)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=look, args=(queue,))\n"
        "    process.start(); print(queue.get()); process.join(); print(process.exitcode)\n"
    )
    found = run(interpreter, str(tmp_path / "script.py"))
    assert (found.stdout, found.returncode) == ("True\n0\n", 0), found.stderr


def test_random_numbers_differ(interpreter):
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    one, other = (run(interpreter, "-c", code).stdout.split() for _ in range(2))
    assert not set(one) & set(other)


WAITING = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"


def start_waiting(script: Path) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([script, "-c", WAITING], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout:
        return process, int(process.stdout.readline())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
def test_a_signal_reaches_what_runs(interpreter, number):
    process, pid = start_waiting(interpreter)
    process.send_signal(number)
    assert process.wait(20) == -number
    assert gone(pid)
    assert is_forked(interpreter)


def test_the_end_of_what_runs_is_that_of_its_client(interpreter):
    process, pid = start_waiting(interpreter)
    os.kill(pid, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL


def test_everything_ends_with_the_command_however_it_ends(tmp_path):
    command = (
        "from recollect.engines.verl.warm.start import warmed\nimport time\n"
        "with warmed(['json']) as script: print(script, flush=True); time.sleep(100)"
    )
    owner = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    with owner.stdout:
        script = Path(owner.stdout.readline().strip())
    process, pid = start_waiting(script)
    owner.kill()
    owner.wait()
    assert gone(pid)
    assert process.wait(20) == -signal.SIGKILL
    # Who asks now is served by an interpreter of its own.
    found = run(script, "-c", "import sys; print(sys.argv, 'numpy' in sys.modules)", "a")
    assert (found.stdout, found.returncode) == ("['-c', 'a'] False\n", 0)


def test_forks_of_what_has_imported_ray_would_draw_the_same_identifiers(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "ray.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with warmed(["ray"]) as script:
        found = run(script, "-c", "import sys; print('ray' in sys.modules)")
    assert (found.stdout, found.returncode) == ("False\n", 0)
    assert "one by one" in capfd.readouterr().err


def test_forks_of_what_has_used_the_gpu_could_not_use_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert server.can_be_forked()
    monkeypatch.setattr(server, "gpu_is_touched", lambda: True)
    assert not server.can_be_forked()


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--version",), ("-",), ("-c",), ("-Z", "x")])
def test_what_only_a_new_interpreter_can_do_is_left_to_one(arguments):
    assert job_of(arguments) is None
