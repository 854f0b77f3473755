"""Say how to install the build of torch in a folder: print pip's arguments.

A file that PyPI holds must have a checksum of torch.txt. A build with a local version, such as
2.13.0+cpu, can only come from an index or a folder that this machine's owner named: where its
checksum is not listed, it is installed with a note.
"""

import hashlib
import sys
from pathlib import Path

(wheel,) = Path(sys.argv[1]).glob("torch-*")
listed = Path(__file__).with_name("torch.txt")
checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
if "+" not in wheel.name or checksum in listed.read_text():
    print(f"--require-hashes --no-deps -r {listed}")
else:
    print(f"note: {wheel.name} is your own build; its sha256 is {checksum}", file=sys.stderr)
    print(f"--no-deps {wheel}")
