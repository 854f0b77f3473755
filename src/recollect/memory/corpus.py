"""The immutable base that trials share: contents, metadata, vectors and an inverted index.

Everything is a flat numpy array: texts are one byte blob with offsets, postings are slices. So a
base can be written with `save` and opened with `Corpus.open(folder)` as memory-mapped files: any
number of processes then share one copy in the page cache. Knows nothing of edits.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import UserError
from recollect.files import loads, read_file
from recollect.foreign import storable
from recollect.memory.entries import (
    FACETS,
    Draft,
    Entry,
    Value,
    checked,
    facet,
    facets_of,
    name_of,
    plain,
)
from recollect.memory.terms import words

_FORMAT = 1
_RECENT = 4096
_decode = json.JSONDecoder().raw_decode  # what json.loads does, less the search for spaces


@dataclass(frozen=True, eq=False)
class Strings:
    """Texts in one blob."""

    blob: np.ndarray
    """uint8: the texts in UTF-8, one after the other"""
    offsets: np.ndarray
    """int64 [n + 1]: text i is blob[offsets[i]:offsets[i + 1]]"""

    @classmethod
    def pack(cls, texts: Iterable[str]) -> Strings:
        """Pack texts into a blob."""
        encoded = [storable(text).encode() for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> str:
        start, end = self.offsets[i : i + 2].tolist()
        return self.blob[start:end].tobytes().decode()


@dataclass(frozen=True, eq=False)
class Postings:
    """Which entries have a key, and how often: for words, and for metadata to filter on."""

    keys: Strings
    starts: np.ndarray
    """int64 [keys + 1]"""
    positions: np.ndarray
    """int32: ascending within a key"""
    counts: np.ndarray
    """int32"""

    @classmethod
    def build(cls, rows: Iterable[Counter[str]]) -> Postings:
        """Invert one counter of keys per entry."""
        found: dict[str, list[tuple[int, int]]] = {}
        for position, row in enumerate(rows):
            for key, count in row.items():
                found.setdefault(key, []).append((position, count))
        keys = sorted(found)
        starts = np.zeros(len(keys) + 1, np.int64)
        np.cumsum([len(found[key]) for key in keys], out=starts[1:])
        flat = np.array(list(chain.from_iterable(found[k] for k in keys)), np.int32).reshape(-1, 2)
        columns = np.ascontiguousarray(flat.T)
        return cls(Strings.pack(keys), starts, columns[0], columns[1])

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {self.keys[row]: row for row in range(len(self.keys))}

    def get(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions that have a key, and its count at each."""
        row = self._rows.get(key)
        part = slice(0, 0) if row is None else slice(self.starts[row], self.starts[row + 1])
        return self.positions[part], self.counts[part]


@dataclass(frozen=True, eq=False)
class Corpus:
    """A base of memories `memory_1` to `memory_n`, shared by all trials and never changed."""

    name: str
    contents: Strings
    metadata: Strings
    """JSON objects"""
    lengths: np.ndarray
    """int32 [n]: words per entry"""
    terms: Postings
    facets: Postings
    vectors: np.ndarray | None
    """float32 [n, d], unit length; None allows word search only"""
    fingerprint: str
    """A hash of names, contents and metadata: equal bases have equal fingerprints."""
    _recent: dict[int, tuple[str, dict[str, Value]]] = field(default_factory=dict, repr=False)
    """Entries as they were last read: the trials of a base look at the same few."""

    @classmethod
    def build(
        cls, name: str, drafts: Iterable[Draft] = (), vectors: np.ndarray | None = None
    ) -> Corpus:
        """Index memories; `vectors` holds one unit row per memory."""
        own = [checked(draft.content, draft.metadata) for draft in drafts]
        texts = [json.dumps(plain(d.metadata), ensure_ascii=False, sort_keys=True) for d in own]
        bags = [Counter(words(draft.content)) for draft in own]
        digest = hashlib.sha256(json.dumps([name, len(own)]).encode())
        for draft, text in zip(own, texts, strict=True):
            digest.update(json.dumps([draft.content, text]).encode())
        return cls(
            name,
            Strings.pack(draft.content for draft in own),
            Strings.pack(texts),
            np.array([bag.total() for bag in bags], np.int32),
            Postings.build(bags),
            Postings.build(Counter(facets_of(draft.metadata)) for draft in own),
            None if vectors is None else unit_rows(vectors, len(own)),
            digest.hexdigest()[:16],
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Entry]:
        return (self.entry(number) for number in range(1, len(self) + 1))

    def entry(self, number: int) -> Entry:
        """Return the number-th memory, counting from 1."""
        read = self._recent.get(number)
        if read is None:
            metadata, _ = _decode(self.metadata[number - 1])
            own = {k: v if isinstance(v, str) else tuple(v) for k, v in metadata.items()}
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            read = self._recent[number] = (self.contents[number - 1], own)
        # A copy: no caller can change what another one gets.
        return Entry(name_of(number), read[0], dict(read[1]))

    @cached_property
    def spelt(self) -> dict[str, dict[str, int]]:
        """The values of every facet as an entry spells them, and how many entries have each."""
        found: dict[str, dict[str, int]] = {name: {} for name in FACETS}
        for key in (self.facets.keys[i] for i in range(len(self.facets.keys))):
            name, positions = key.partition("\0")[0], self.facets.get(key)[0]
            # The index keeps values without their case.
            value = self.entry(int(positions[0]) + 1).metadata[name]
            texts = (value,) if isinstance(value, str) else value
            found[name][next(t for t in texts if facet(name, t) == key)] = len(positions)
        return found

    @property
    def nbytes(self) -> int:
        """Bytes its arrays take, once for all trials."""
        return sum(array.nbytes for array in self.arrays().values())

    def save(self, folder: Path) -> None:
        """Write the arrays as files that `open` can map."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self.arrays().items():
            np.save(folder / f"{name}.npy", array)
        header = {"format": _FORMAT, "name": self.name, "fingerprint": self.fingerprint}
        (folder / "corpus.json").write_text(json.dumps(header))

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """Map a saved base; nothing is read before it is used."""
        try:
            header = loads(read_file(folder / "corpus.json"))
            files = sorted(folder.glob("*.npy"))
            mapped = {f.stem: np.load(f, mmap_mode="r", allow_pickle=False) for f in files}
            if header["format"] != _FORMAT:
                raise ValueError(f"it has format {header['format']}, not {_FORMAT}")
            return cls.of(header, mapped)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"{folder} holds no saved memories: {error}", "save them again"
            ) from None

    @classmethod
    def of(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Corpus:
        """Put a base together from its name, its fingerprint and its arrays."""

        def strings(name: str) -> Strings:
            return Strings(arrays[f"{name}.blob"], arrays[f"{name}.offsets"])

        def postings(name: str) -> Postings:
            parts = (arrays[f"{name}.{part}"] for part in ("starts", "positions", "counts"))
            return Postings(strings(f"{name}.keys"), *parts)

        return cls(
            header["name"],
            strings("contents"),
            strings("metadata"),
            arrays["lengths"],
            postings("terms"),
            postings("facets"),
            arrays.get("vectors"),
            header["fingerprint"],
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything but name and fingerprint as flat arrays."""
        arrays = {"lengths": self.lengths}
        if self.vectors is not None:
            arrays["vectors"] = self.vectors
        texts = {"contents": self.contents, "metadata": self.metadata}
        for name, postings in (("terms", self.terms), ("facets", self.facets)):
            texts[f"{name}.keys"] = postings.keys
            for part in ("starts", "positions", "counts"):
                arrays[f"{name}.{part}"] = getattr(postings, part)
        for name, strings in texts.items():
            arrays |= {f"{name}.blob": strings.blob, f"{name}.offsets": strings.offsets}
        return arrays


def unit_rows(vectors: np.ndarray, n: int) -> np.ndarray:
    """Return vectors as float32 [n, d], or refuse them if they cannot be compared by angle."""
    rows = np.ascontiguousarray(vectors, np.float32)
    if rows.ndim != 2 or len(rows) != n:
        raise ValueError(f"{n} texts need as many vectors, not an array of shape {rows.shape}")
    squares = np.einsum("ij,ij->i", rows, rows)
    # float16 keeps three digits of a length; zero and NaN rows fail here too.
    right = np.abs(squares - 1) < 2e-2
    if not right.all():
        at = int(np.argmin(right))
        raise ValueError(f"vector {at} has length {np.sqrt(squares[at])}, not 1")
    return rows
