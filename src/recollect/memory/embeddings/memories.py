"""Compute every memory's vector once: the command `recollect data embed`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recollect.errors import UserError
from recollect.files import lock, make_folder
from recollect.memory.embeddings.base import Embedder, EmbeddingFailed, unit_vectors
from recollect.memory.embeddings.cache import DType, EmbeddingCache
from recollect.memory.embeddings.endpoint import EndpointEmbedder
from recollect.memory.embeddings.folder import MINILM, FolderEmbedder
from recollect.memory.parquet import read_table


@dataclass(frozen=True)
class EmbedOptions:
    """Compute the vectors of memories into a cache; what is there is not computed again."""

    input: Path
    """A folder with memories.parquet, or any Parquet file with a column `content`."""
    cache: Path
    """The folder that keeps vectors, for any number of models and inputs."""
    model: str = MINILM
    """minilm (needs no download), a sentence-transformers folder or name, or what `url` serves."""
    url: str = ""
    """An OpenAI-compatible server, up to and with /v1; its key is taken from OPENAI_API_KEY."""
    dtype: DType = "float32"
    batch_size: int = 64
    device: str = "auto"
    """Where a local model runs: auto (the GPU if there is one), cpu, cuda, mps."""

    def embedder(self) -> Embedder:
        """Return the embedder these options describe."""
        if self.url:
            return EndpointEmbedder(self.url, self.model)
        return FolderEmbedder(self.model, self.device)

    def open_cache(self) -> EmbeddingCache:
        """Open the cache of this model's vectors."""
        return EmbeddingCache(self.cache, self.embedder().id, self.dtype)


@dataclass(frozen=True)
class EmbedReport:
    """What was embedded."""

    model: str
    dtype: str
    texts: int
    """Different ones."""
    computed: int
    """Those that were not in the cache before."""
    folder: Path


def embed_memories(options: EmbedOptions, console: Console | None = None) -> EmbedReport:
    """Embed every memory that has no vector yet."""
    if options.batch_size < 1:
        raise UserError(f"batch_size is {options.batch_size}", "set it to 1 or more")
    texts = list(dict.fromkeys(_contents(options.input)))
    embedder = options.embedder()
    cache = EmbeddingCache(options.cache, embedder.id, options.dtype)
    make_folder(cache.folder)
    with lock(cache.folder):
        missing = cache.missing(texts)
        asyncio.run(fill(cache, embedder, missing, options.batch_size, console))
        cache.tidy()
    return EmbedReport(embedder.id, options.dtype, len(texts), len(missing), cache.folder)


async def fill(
    cache: EmbeddingCache,
    embedder: Embedder,
    texts: Sequence[str],
    batch_size: int = 64,
    console: Console | None = None,
) -> None:
    """Embed texts into a cache, one safe batch after another."""
    # Texts of like length waste no padding; the longest first, so that memory runs out early.
    ordered = sorted(texts, key=len, reverse=True)
    columns = (TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not ordered) as progress:
        bar = progress.add_task("embedding", total=len(ordered))
        for start in range(0, len(ordered), batch_size):
            batch = ordered[start : start + batch_size]
            try:
                vectors = await unit_vectors(embedder, batch)
            except EmbeddingFailed as failure:
                raise UserError(
                    f"{embedder.id} gives {failure}",
                    "fix the text or the embedder, then run again: finished work is kept",
                ) from failure
            cache.add(batch, vectors)
            progress.advance(bar, len(batch))


def _contents(path: Path) -> list[str]:
    file = path / "memories.parquet" if path.is_dir() else path
    fix = "make memories with `recollect data locomo`, or give a Parquet file with `content`"
    try:
        table = read_table(file)
        contents = table.column("content").to_pylist()
    except FileNotFoundError:
        raise UserError(f"there is no file {file}", fix) from None
    except (OSError, KeyError, pa.ArrowInvalid) as error:
        raise UserError(f"{file} cannot be read: {error}", fix) from None
    if not all(isinstance(text, str) for text in contents):
        raise UserError(f"{file} has contents that are not texts", fix)
    return contents
