"""The shape of a model: what its sizes follow from. Read from a folder, or known by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recollect.errors import UserError
from recollect.files import loads, read_file


@dataclass(frozen=True)
class Shape:
    """A decoder with grouped-query attention and a gated feed-forward part."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    """Numbers per head."""
    inner: int
    """Width of the feed-forward part."""
    vocabulary: int
    tied: bool
    """Whether the output layer is the embedding."""
    window: int

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.inner + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        outer = self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden
        return self.layers * self.layer_parameters + outer

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values per token, in 16 bits."""
        return 2 * self.layers * self.kv_heads * self.head * 2


KNOWN = {
    "Qwen2.5-0.5B": Shape(896, 24, 14, 2, 64, 4864, 151936, True, 32768),
    "Qwen2.5-1.5B": Shape(1536, 28, 12, 2, 128, 8960, 151936, True, 32768),
    "Qwen2.5-3B": Shape(2048, 36, 16, 2, 128, 11008, 151936, True, 32768),
    "Qwen2.5-7B": Shape(3584, 28, 28, 4, 128, 18944, 152064, False, 32768),
    "Qwen2.5-14B": Shape(5120, 48, 40, 8, 128, 13824, 152064, False, 32768),
    "Qwen3-4B": Shape(2560, 36, 32, 8, 128, 9728, 151936, True, 40960),
    "Qwen3-8B": Shape(4096, 36, 32, 8, 128, 12288, 151936, False, 40960),
}
"""By the name that a model's path contains; the longest one counts."""


def find_shape(path: str) -> Shape | None:
    """Return a model's shape by its folder, else by its name; None if neither tells."""
    config = Path(path).expanduser() / "config.json"
    if path and config.is_file():
        return _read(config)
    named = [name for name in KNOWN if name.lower() in path.lower()]
    return KNOWN[max(named, key=len)] if named else None


def _read(path: Path) -> Shape:
    try:
        table = loads(read_file(path))
        table = table.get("text_config") or table
        heads = table["num_attention_heads"]
        return Shape(
            table["hidden_size"],
            table["num_hidden_layers"],
            heads,
            table.get("num_key_value_heads") or heads,
            table.get("head_dim") or table["hidden_size"] // heads,
            table["intermediate_size"],
            table["vocab_size"],
            table.get("tie_word_embeddings", True),
            table.get("max_position_embeddings", 1 << 30),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not describe a decoder model: {error!r}", "name a model's folder"
        ) from None
