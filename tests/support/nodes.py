"""Ray nodes on one machine, each with its own name, shared memory and Python environment."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from recollect.engines.verl.cpu.keys import ENVIRONMENT
from recollect.engines.verl.launch.start import environment

APART = ("unshare", "--map-root-user", "--mount", "--uts")
"""Give a process a /dev/shm and a host name of its own, as another machine has them."""
FURNISH = 'mount -t tmpfs tmpfs /dev/shm && hostname "$0" && exec "$@"'
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
"""What every process needs that talks to these nodes."""


def can_be_apart() -> bool:
    """Tell whether this machine lets a process have a shared memory of its own."""
    try:
        tried = [*APART, "sh", "-c", FURNISH, "node", "true"]
        return subprocess.run(tried, capture_output=True).returncode == 0
    except OSError:
        return False


QUICK = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
"""Let Ray notice within a few seconds that a node is gone."""


class RayNode:
    """One raylet with all that it starts, in a process group of its own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        head: str = "",
        python: Path = Path(sys.executable),
    ) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        self.address = head or f"127.0.0.1:{free_port()}"
        port = self.address.split(":")[1]
        begins = ["--head", "--port", port, "--include-dashboard", "false"]
        # Ray's sockets have names of at most 107 characters, and those of tests are long.
        self.temporary = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        command = [
            *(str(python), "-m", "ray.scripts.scripts", "start", "--block"),
            *("--num-cpus", "8", "--num-gpus", "1", "--object-store-memory", str(256 << 20)),
            *("--disable-usage-stats", "--temp-dir", self.temporary.name),
            *(["--address", head] if head else begins),
        ]
        if head and can_be_apart():
            command = [*APART, "sh", "-c", FURNISH, name, *command]
        given = environment() | ENVIRONMENT | TOKEN | QUICK
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=given
            )

    @property
    def shared_memory(self) -> Path:
        """Its own /dev/shm, as it is seen from here."""
        return Path(f"/proc/{self.process.pid}/root/dev/shm")

    def stop(self) -> None:
        """Kill the node at once, as a machine that loses its power."""
        if self.process.poll() is None:
            root = psutil.Process(self.process.pid)
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait(60)
        self.temporary.cleanup()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def answers(address: str) -> bool:
    """Tell whether something listens at an address."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def other_environment(folder: Path, packages: Path) -> Path:
    """Make an environment like this one, with other packages before all else; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    own = next((folder / "lib").glob("python*/site-packages"))
    lines = [sysconfig.get_path("purelib"), f"import sys; sys.path.insert(0, {str(packages)!r})"]
    (own / "other.pth").write_text("\n".join(lines) + "\n")
    return folder / "bin" / "python"
