"""Where a server listens and who may call it: beyond this machine only with a key.

Knows nothing of models; importable without torch.
"""

from __future__ import annotations

import ipaddress
import os
import socket

from recollect.errors import UserError

BACKLOG = 2048
"""Connections that the system holds until they are accepted."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


def bind(host: str, port: int) -> socket.socket:
    """Open the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(
            f"cannot listen at {host} port {port}: {error.strerror or error}",
            "choose another --port (0 takes a free one) or --host",
        ) from error
    return listener


def find_key(host: str, variable: str, insecure: bool | None = None) -> str:
    """Return the key that clients must send; refuse to be open to a network by mistake.

    `insecure` is None where no flag can allow that.
    """
    if variable:
        key = os.environ.get(variable, "")
        if not key:
            raise UserError(
                f"the environment variable {variable} is empty",
                f"set it: export {variable}=...",
            )
        if not (key.isascii() and key.isprintable()):
            raise UserError(
                f"the key in {variable} has characters that no client can send",
                "set it again: a key has only printable ASCII characters",
            )
        return key
    if not is_loopback(host) and not insecure:
        raise UserError(
            f"anyone who reaches {host} could use the server: it has no API key",
            "name a variable that holds one with --api-key-env"
            + ("" if insecure is None else ", or say --insecure"),
        )
    return ""


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
