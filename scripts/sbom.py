"""Write a software bill of materials (CycloneDX 1.5) from locked requirements: `make sbom`.

    python scripts/sbom.py requirements/demo.txt requirements/torch.txt > sbom.json

The same files give the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==([^\s;\\]+)((?:\s*\\\n\s+--hash=sha256:[0-9a-f]{64})*)", re.M
)


def components(paths: list[Path]) -> list[dict[str, Any]]:
    """Return one component for every pinned package, with the checksums of its files."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for name, version, hashes in PIN.findall(path.read_text()):
            canonical = re.sub(r"[-_.]+", "-", name).lower()
            purl = f"pkg:pypi/{canonical}@{version}"
            files = re.findall(r"sha256:([0-9a-f]{64})", hashes)
            found[canonical] = {
                "type": "library",
                "bom-ref": purl,
                "name": canonical,
                "version": version,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": content} for content in files],
            }
    return [found[name] for name in sorted(found)]


def bill(paths: list[Path]) -> dict[str, Any]:
    """Return the whole bill; its number follows from what it lists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parts = components(paths)
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, parts], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


if __name__ == "__main__":
    json.dump(bill([Path(path) for path in sys.argv[1:]]), sys.stdout, indent=1)
    print()
