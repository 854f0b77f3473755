"""The warm process: what is run through it behaves as in an interpreter of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recollect.engines.verl.warm import client, server
from recollect.engines.verl.warm.job import job_of
from recollect.engines.verl.warm.start import warmed


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "imported_early.py").write_text(
        "import os\nopened = open(__file__)\nos.environ.setdefault('SET_EARLY', 'by the import')\n"
        "os.environ['CHANGED_EARLY'] = 'changed'\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHANGED_EARLY", "as it was")
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        with warmed(["imported_early", "is_not_there", "numpy"]) as script:
            yield script


def run(script: Path, *arguments: object, **given: object) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 60} | given
    return subprocess.run([script, *map(str, arguments)], **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Write a text to a file that can be run."""

    def write(code: str) -> Path:
        (tmp_path / "program.py").write_text(code)
        return tmp_path / "program.py"

    return write


def both(script: Path, *arguments: object, **given: object) -> tuple[object, object]:
    """Return what the warm process and a real interpreter make of the same arguments."""
    found = (run(Path(each), *arguments, **given) for each in (str(script), sys.executable))
    warm, real = ((r.returncode, r.stdout, r.stderr.splitlines()[-1:]) for r in found)
    return warm, real


LOOK = "import sys; print('imported_early' in sys.modules)"


@pytest.mark.parametrize(
    "code",
    [
        "import sys, os; print(sys.argv[1:], os.getcwd(), sys.path[0])",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('said')",
        "1 / 0",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; os._exit(3)",
        "import atexit; atexit.register(print, 'at the end'); print('first')",
        "import sys; print(sys.stdin.read().upper())",
        "import os; print(os.environ['GIVEN'], os.environ.get('OMP_NUM_THREADS'))",
        "import signal; print([signal.getsignal(n) for n in (2, 15, 17)])",
        "import os; mask = os.umask(0); print(oct(mask))",
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))",
        "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0))",
        "import atexit, pickle\nclass A: pass\natexit.register(lambda: print(pickle.dumps(A())))",
        "import time; print(time.tzname)",
    ],
)
@pytest.mark.parametrize("switches", [(), ("-u", "-X", "dev", "-Wignore"), ("-P",)])
def test_it_does_what_an_interpreter_does(interpreter, program, tmp_path, code, switches):
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    given = {"cwd": tmp_path, "env": environment | {"GIVEN": "gïven"}}
    words = (*switches, program(code), "a b", "-c")
    warm, real = both(interpreter, *words, input="hello", **given)
    if "-P" in switches and "sys.path" in code:  # then the first is anything but the folder
        warm, real = ((each[0], str(tmp_path) in str(each[1]).split()[-1]) for each in (warm, real))
    assert warm == real
    assert run(interpreter, program(LOOK)).stdout == "True\n"


@pytest.mark.parametrize("code", ["assert 0", "import warnings; warnings.warn('said')"])
def test_switches_that_change_what_code_does_are_not_lost(interpreter, program, code):
    for switches in ((), ("-O", "-Werror")):
        warm, real = both(interpreter, *switches, program(code))
        assert warm == real


def test_every_fork_leads_a_group_of_its_own(interpreter, program):
    """Ray ends the group of a worker with it: were the warm process in it, all forks would end."""
    code = program("import os; os.killpg(os.getpgid(0), 9)")
    assert run(interpreter, code).returncode == -signal.SIGKILL
    assert run(interpreter, program(LOOK)).stdout == "True\n"


@pytest.mark.parametrize("limit", [700, 4000])
def test_limits_and_masks_are_those_of_the_client(interpreter, program, limit):
    code = program(
        "import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.umask(0))"
    )
    words = f"umask 027; ulimit -Sn {limit}; exec {interpreter} {code}"
    found = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60)
    assert found.stdout == f"{limit} {0o027}\n"


def test_what_a_shell_ignores_in_its_background_stays_ignored(interpreter, program):
    code = program("import signal; print([signal.getsignal(n).name for n in (1, 2, 10)])")
    words = f"trap '' HUP INT; exec {interpreter} {code}"
    found = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60)
    assert found.stdout == "['SIG_IGN', 'SIG_IGN', 'SIG_DFL']\n"


def test_what_an_interpreter_reads_as_it_begins_needs_a_new_one(interpreter, program):
    code = program("import sys; print(hash('a'), 'imported_early' in sys.modules)")
    given = {"env": os.environ | {"PYTHONHASHSEED": "7"}}
    warm, real = both(interpreter, code, **given)
    assert warm == real and "False" in str(warm)


def test_what_imports_set_in_the_environment_is_there_unless_it_is_given(interpreter, program):
    code = program("import os; print(os.environ.get('SET_EARLY'), os.environ.get('CHANGED_EARLY'))")
    assert run(interpreter, code).stdout == "by the import changed\n"
    given = {"SET_EARLY": "by hand", "CHANGED_EARLY": "by hand"}
    assert run(interpreter, code, env=os.environ | given).stdout == "by hand by hand\n"


def test_a_client_that_has_given_up_becomes_nothing(interpreter, program, tmp_path):
    """Its whole request was read, and nobody is there to be told."""
    done = tmp_path / "done"
    code = program(f"open({str(done)!r}, 'w')")
    given = {"arguments": [str(code)], "environment": dict(os.environ), "folder": "/", "files": [],
             "umask": 0o22, "most_files": [1024, 4096], "ignored": []}  # fmt: skip
    text = json.dumps(given).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(interpreter.parent / "socket"))
        connection.sendall(len(text).to_bytes(8, "big") + text)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert run(interpreter, program(LOOK)).stdout == "True\n"  # it has been read by now
    assert not done.exists()


def test_a_folder_that_takes_no_socket_is_said_and_costs_nothing_else(tmp_path, monkeypatch, capfd):
    place = tmp_path / ("long" * 30)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with warmed(["json"]) as script:
        assert script is None
    assert "started one by one: AF_UNIX path too long" in capfd.readouterr().err
    assert not list(place.iterdir())


def test_no_folder_for_a_socket_costs_nothing_else(monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/nowhere")
        with warmed(["json"]) as script:
            assert script is None
    assert "started one by one: [Errno 2]" in capfd.readouterr().err


def test_too_few_files_cost_nothing_else():
    code = (
        "from recollect.engines.verl.warm.start import warmed\n"
        "with warmed(['json']) as script: print(script)"
    )
    words = f'ulimit -Sn 400; exec {sys.executable} -c "{code}"'
    found = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60)
    assert found.stdout == "None\n" and "only 400 files may be open" in found.stderr


def test_a_folder_whose_name_is_no_text(tmp_path, monkeypatch, program):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(place)
    monkeypatch.setattr(tempfile, "tempdir", place)
    with warmed(["json"]) as script:
        assert run(script, program("print('runs')")).stdout == "runs\n"


def test_where_no_process_can_be_forked_a_client_is_an_interpreter(tmp_path, program, monkeypatch):
    """As where memory or the number of processes is at its limit."""
    (tmp_path / "no_forks.py").write_text(
        "import os\ndef fork(): raise BlockingIOError(11, 'no more processes')\nos.fork = fork\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with warmed(["no_forks"]) as script:
        for _ in range(2):
            found = run(script, program("import sys; print(sys.argv[1:])"), "a")
            assert (found.stdout, found.returncode) == ("['a']\n", 0)


@pytest.mark.parametrize("arguments", [("-c", "import sys; print(sys.argv)", "x"), ("--version",)])
def test_other_requests_go_to_an_interpreter_of_their_own(interpreter, arguments):
    warm, real = both(interpreter, *arguments)
    assert warm == real
    assert run(interpreter, "-c", LOOK).stdout == "False\n"


def test_a_file_is_run_as_a_script_with_its_folder_first(interpreter, tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    (tmp_path / "script.py").write_text(
        "import sys, beside\nprint(__name__, __file__, sys.argv, sys.path[0], beside.NAME)"
    )
    warm, real = both(interpreter, str(tmp_path / "script.py"), "--flag", "-x")
    assert warm == real


def test_files_that_are_passed_keep_their_numbers(interpreter, program):
    reading, writing = os.pipe()
    high = 300
    os.dup2(writing, high)
    code = program(f"import os; os.write({high}, b'through the pipe')")
    run(interpreter, code, pass_fds=(high,))
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


def test_random_numbers_differ(program):
    code = program(
        "import random, numpy, torch\n"
        "print(random.random(), numpy.random.rand(), torch.rand(1).item())"
    )
    with warmed(["numpy", "torch"]) as script:
        one, other = (run(script, code).stdout.split() for _ in range(2))
    assert len(one) == 3 and not set(one) & set(other)


WAITING = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"


def start_waiting(script: Path, program: Path) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([script, program], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout:
        return process, int(process.stdout.readline())


def gone_folder(folder: Path) -> bool:
    deadline = time.monotonic() + 20
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not folder.exists()


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


CHAIN = """
import multiprocessing, os, time
spawning = multiprocessing.get_context("spawn")
def last(queue):
    queue.put(os.getpid())
    time.sleep(100)
def middle(queue):
    process = spawning.Process(target=last, args=(queue,))
    process.start()
    last(queue)
if __name__ == "__main__":
    queue = spawning.Queue()
    spawning.Process(target=middle, args=(queue,)).start()
    print(os.getpid(), queue.get(), queue.get(), flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("whole_group", [True, False])
def test_all_that_a_process_has_started_ends_with_its_group(interpreter, program, whole_group):
    """Ray ends a worker by its group, and what vLLM has started for it must not keep the GPU."""
    process = subprocess.Popen(
        [interpreter, program(CHAIN)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        process_group=0,
    )  # fmt: skip
    assert process.stdout
    with process.stdout:
        pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 3
    os.killpg(os.getpgid(pids[0]) if whole_group else process.pid, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
def test_a_signal_reaches_what_runs(interpreter, program, number):
    process, pid = start_waiting(interpreter, program(WAITING))
    process.send_signal(number)
    assert process.wait(20) == -number
    assert gone(pid)
    assert run(interpreter, program(LOOK)).stdout == "True\n"


def test_the_end_of_what_runs_is_that_of_its_client(interpreter, program):
    process, pid = start_waiting(interpreter, program(WAITING))
    os.kill(pid, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL


def test_everything_ends_with_the_command_however_it_ends(program):
    command = (
        "from recollect.engines.verl.warm.start import warmed\nimport time\n"
        "with warmed(['json']) as script: print(script, flush=True); time.sleep(100)"
    )
    owner = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    with owner.stdout:
        script = Path(owner.stdout.readline().strip())
    process, pid = start_waiting(script, program(WAITING))
    owner.kill()
    owner.wait()
    assert gone(pid)
    assert process.wait(20) == -signal.SIGKILL
    assert gone_folder(script.parent)


def test_without_the_warm_process_a_client_is_an_interpreter(tmp_path, program):
    words = [sys.executable, "-IS", client.__file__, tmp_path / "nobody"]
    code = program("import sys; print(sys.argv[1:])")
    found = subprocess.run([*words, code, "a"], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.returncode) == ("['a']\n", 0)


def test_a_client_that_cannot_say_where_it_is_disturbs_nobody(interpreter, program, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    code = program(LOOK)
    vanish = f"cd {place} && rmdir {place} && exec {interpreter} {code}"
    found = subprocess.run(["sh", "-c", vanish], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.returncode) == ("False\n", 0)
    assert run(interpreter, code).stdout == "True\n"


def test_a_path_of_its_own_is_imported_from(interpreter, program, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "only_there.py").write_text("NAME = 'there'")
    path = os.pathsep.join([str(tmp_path / "more"), os.environ["PYTHONPATH"]])
    code = program("import only_there; print(only_there.NAME)")
    assert run(interpreter, code, env=os.environ | {"PYTHONPATH": path}).stdout == "there\n"


def test_forks_of_what_has_imported_ray_would_draw_the_same_identifiers(
    tmp_path, program, monkeypatch, capfd
):
    (tmp_path / "ray.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with warmed(["ray"]) as script:
        found = run(script, program("import sys; print('ray' in sys.modules)"))
    assert (found.stdout, found.returncode) == ("False\n", 0)
    assert "one by one" in capfd.readouterr().err


def test_forks_of_what_has_used_the_gpu_could_not_use_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert server.can_be_forked()
    monkeypatch.setattr(server, "gpu_is_touched", lambda: True)
    assert not server.can_be_forked()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-h",),
        ("-",),
        ("-O", "x"),
        ("-Wignore", "x"),
        ("-X", "dev", "x"),
        ("-c",),
        ("-c", "print()"),
        ("-m", "this"),
        ("-Z", "x"),
    ],
)
def test_what_only_a_new_interpreter_can_do_is_left_to_one(arguments):
    assert job_of(arguments) is None
