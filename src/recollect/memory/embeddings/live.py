"""Vectors while episodes run: cached ones at once, new ones in batches over all episodes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

import numpy as np

from recollect.errors import UserError, boundary
from recollect.memory.embeddings.base import Embedder, EmbeddingFailed, Kind, unit_vectors
from recollect.memory.embeddings.cache import EmbeddingCache

_Wanted = tuple[str, Kind]
_Waiting = dict[str, asyncio.Future[np.ndarray]]
_ALIKE = 16
"""Batches that are taken at once, so that texts of like length are together: less is padding."""


class LiveEmbedder:
    """Embeds for many stores at once; call it as a store's `embed`.

    While one batch is computed, the texts of all episodes gather for the next, so there is no delay
    to tune. A text that fails fails the episodes that asked for it, and no other.
    """

    def __init__(
        self,
        embedder: Embedder,
        cache: EmbeddingCache | None = None,
        batch_size: int | None = None,
        keep: int = 20_000,
    ) -> None:
        self.embedder = embedder
        self.cache = cache
        self.batch_size = batch_size
        """How many texts are embedded at once; the embedder's own where it is not given."""
        self.keep = keep
        """Vectors held in memory, the longest unused given up first."""
        self.width = cache.width if cache is not None else None
        """Numbers in a vector; None before the first."""
        self.batches = 0
        self._kept: OrderedDict[_Wanted, np.ndarray] = OrderedDict()
        self._waiting = _nothing()
        self._worker: asyncio.Task[None] | None = None

    async def __call__(self, texts: Sequence[str], kind: Kind = "document") -> np.ndarray:
        """Return the unit vectors of texts, float32 [n, d]."""
        with boundary("embedder"):
            if self.batch_size is None:
                self.batch_size = self.embedder.batch_size  # which opens its device
            rows = [self._known((text, kind)) for text in texts]
            lacking = [text for text, row in zip(texts, rows, strict=True) if row is None]
            awaited = [self._ask((text, kind)) for text in lacking]
            if awaited:
                # Not gather: when this episode is cancelled, others may wait for the same text.
                await asyncio.wait(set(awaited))
            new = iter([future.result() for future in awaited])
            return np.array([next(new) if row is None else row for row in rows], np.float32)

    def _known(self, wanted: _Wanted) -> np.ndarray | None:
        row = self._kept.get(wanted)
        if row is not None:
            self._kept.move_to_end(wanted)
        elif self.cache is not None and wanted[1] == "document":
            row = self.cache.get(wanted[0])
        return row

    def _ask(self, wanted: _Wanted) -> asyncio.Future[np.ndarray]:
        loop = asyncio.get_running_loop()
        if self._worker is not None and self._worker.get_loop() is not loop:
            self._worker, self._waiting = None, _nothing()  # of a loop that has ended
        text, kind = wanted
        waiting = self._waiting[kind]
        if text not in waiting:
            waiting[text] = loop.create_future()
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        return waiting[text]

    async def _work(self) -> None:
        await asyncio.sleep(0)  # whoever is ready to run now joins the first batch
        waiting, size = self._waiting, self.batch_size or 1
        while kind := next((kind for kind, asked in waiting.items() if asked), None):
            alike = sorted(islice(waiting[kind], _ALIKE * size), key=len)
            for start in range(0, len(alike), size):
                await self._batch(alike[start : start + size], kind, waiting[kind])

    async def _batch(self, texts: list[str], kind: Kind, waiting: _Waiting) -> None:
        self.batches += 1
        results: list[np.ndarray | BaseException] = []
        try:
            results = await self._vectors(texts, kind)
        except BaseException as error:
            results = [error] * len(texts)
            if not isinstance(error, Exception):
                raise
        finally:
            futures = [waiting.pop(text) for text in texts]
            self._settle([(text, kind) for text in texts], futures, results)

    async def _vectors(self, texts: list[str], kind: Kind) -> list[np.ndarray | BaseException]:
        try:
            return list(self._alike(await unit_vectors(self.embedder, texts, kind)))
        except EmbeddingFailed as failure:
            if len(texts) == 1:
                return [failure]
        return [(await self._vectors([text], kind))[0] for text in texts]

    def _alike(self, rows: np.ndarray) -> np.ndarray:
        """Refuse another width: a search would fail, and seem to be the agent's fault."""
        width = rows.shape[1]
        if self.width not in (None, width):
            raise UserError(
                f"the embedder {self.embedder.id} gives vectors of {width} numbers, where it gave"
                f" {self.width} before: another model has its name",
                "bring the former model back, or compute all vectors anew (for stored ones: clear"
                " the cache)",
            )
        self.width = width
        return rows

    def _settle(
        self,
        batch: list[_Wanted],
        futures: list[asyncio.Future[np.ndarray]],
        results: list[np.ndarray | BaseException],
    ) -> None:
        for wanted, future, result in zip(batch, futures, results, strict=True):
            if isinstance(result, np.ndarray):
                self._kept[wanted] = result
            if future.done():
                continue
            if isinstance(result, asyncio.CancelledError):
                future.cancel()
            elif isinstance(result, BaseException):
                future.set_exception(result)
                future.exception()  # seen: whoever asked may be gone
            else:
                future.set_result(result)
        while len(self._kept) > self.keep:
            self._kept.popitem(last=False)


def _nothing() -> dict[Kind, _Waiting]:
    """Return what waits when nothing does; queries come first, as they are few."""
    return {"query": {}, "document": {}}
