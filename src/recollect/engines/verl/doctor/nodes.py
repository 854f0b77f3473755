"""The nodes of a Ray cluster, asked in a process of its own, with which Ray's threads end."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from recollect.engines.verl.doctor.workers import Node, ask
from recollect.engines.verl.launch.start import environment
from recollect.engines.verl.leave import leave
from recollect.errors import UserError
from recollect.files import temporary_files


def ask_nodes(address: str | None = None, modules: Sequence[str] = ()) -> list[Node]:
    """Describe every node of a cluster; without an address, of one that is started for it.

    `modules` are those of the user that every node must have.
    """
    if address:
        check_answers(address)
    with temporary_files():
        temporary = tempfile.TemporaryDirectory()
    with temporary as folder:
        file = Path(folder, "nodes.json")
        command = [sys.executable, "-P", "-m", __name__, str(file), address or "", *modules]
        status = subprocess.run(command, env=environment()).returncode
        if status:
            raise UserError(
                f"Ray {f'at {address}' if address else 'on this machine'} gave no answer"
                f" (exit status {status})",
                "see above what it said" + ("; is the address right?" if address else ""),
            )
        return [Node(**node) for node in json.loads(file.read_text())]


def check_answers(address: str) -> None:
    """Refuse an address where nothing listens: Ray would keep trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return  # such as "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        raise UserError(
            f"nothing answers at {address}: {error}",
            "start Ray there (ray start --head), or give the address that it printed",
        ) from None


def main(file: str, address: str, *modules: str) -> None:
    """Write what the nodes are to a file."""
    Path(file).write_text(json.dumps([asdict(node) for node in ask(address or None, modules)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
    leave(0)
