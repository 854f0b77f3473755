"""Checksums for pinned requirements: every published file of each version, for `--require-hashes`.

    python requirements/hashes.py requirements/demo.txt requirements/test.txt

Asks the indexes that pip is configured with and looks into its folders of wheels, so that a build
for this machine passes as well as those that others get. Names no index and writes no address.
"""

from __future__ import annotations

import hashlib
import html
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from pip._internal.models.index import PyPI
from pip._vendor.packaging.tags import Tag
from pip._vendor.packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pip._vendor.packaging.version import Version

LINK = re.compile(r'<a[^>]+href="([^"]+)"[^>]*>([^<]+)</a>', re.IGNORECASE)
PYTHONS = ("cp311", "cp312", "py311", "py312", "py3", "py2")  # interpreters in tags
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(\s*;[^\\]+?)?\s*\\?$")


@cache
def configured(setting: str) -> list[str]:
    """Return what pip is configured with."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.check_output(command, text=True)
    found = re.findall(rf"^[^=]*\.{setting}='([^']*)'", listing, re.MULTILINE)
    return list(dict.fromkeys(word for text in found for word in text.split()))


def links(name: str) -> Iterator[tuple[str, str]]:
    """Yield (file name, checksum) of all that the indexes and folders hold of a package."""
    indexes = [*(configured("index-url") or [PyPI.simple_url]), *configured("extra-index-url")]
    for index in indexes:
        address = f"{index.rstrip('/')}/{name}/"
        if address.startswith("file:"):
            address += "index.html"
        try:
            with urllib.request.urlopen(address, timeout=120) as reply:
                page = reply.read().decode()
        except OSError:  # an index need not have every package
            continue
        for link, file in LINK.findall(page):
            fragment = urllib.parse.urlsplit(html.unescape(link)).fragment
            if fragment.startswith("sha256="):
                yield file.strip(), fragment.removeprefix("sha256=")
    for folder in configured("find-links"):
        for path in Path(folder).glob(f"{name.replace('-', '_')}-*"):
            yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def version_of(file: str) -> Version | None:
    """Return the version of a file that can be installed where this package runs."""
    try:
        if file.endswith(".whl"):
            _name, version, _build, tags = parse_wheel_filename(file)
            return version if any(map(_fits, tags)) else None
        return parse_sdist_filename(file)[1] if file.endswith((".tar.gz", ".zip")) else None
    except ValueError:  # files from before there were rules for their names
        return None


def _fits(tag: Tag) -> bool:
    python = tag.interpreter in PYTHONS or tag.abi == "abi3"
    system = tag.platform
    linux = system.startswith(("manylinux", "linux")) and system.endswith(("x86_64", "aarch64"))
    return python and (system == "any" or linux or system.startswith("macosx"))


def hashes(name: str, pinned: str) -> list[str]:
    """Return the checksums of a version, of all builds that the indexes hold."""
    wanted = Version(pinned)
    found = sorted(
        {
            checksum
            for file, checksum in links(canonicalize_name(name))
            if (version := version_of(file)) and wanted in (version, Version(version.public))
        }
    )
    if not found:
        raise SystemExit(f"no index has a checksum of {name}=={pinned}")
    return found


def hashed(text: str) -> str:
    """Return a requirements file with a checksum for every build of every pin."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--hash")]
    pins = [PIN.match(line) for line in lines]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda pin: hashes(pin[1], pin[2]) if pin else [], pins)
        written = []
        for line, pin, known in zip(lines, pins, found, strict=True):
            if pin:
                line = f"{pin[1]}=={pin[2]}{pin[3] or ''}"
            written.append(" \\\n".join([line, *(f"    --hash=sha256:{h}" for h in known)]))
    return "\n".join(written) + "\n"


def main(paths: list[str]) -> None:
    """Write checksums into requirement files."""
    for path in map(Path, paths):
        path.write_text(hashed(path.read_text()))
        print(f"{path}: {path.read_text().count('--hash')} checksums")


if __name__ == "__main__":
    main(sys.argv[1:])
