"""The tokenizer of a model folder. Counting its tokens needs neither torch nor transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from recollect.chat.rendering import Renderer, user
from recollect.errors import UserError
from recollect.files import read_json, refuse_pickles
from recollect.foreign import storable
from recollect.models.spelling import spelling_of

FOLDER = "give the folder of a transformers model"
HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""A model's id on the hub."""
WANTED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files of a model: no pickles, and no code."""
REMEMBERED = 4096
"""Texts whose tokens are kept ..."""
LONGEST_REMEMBERED = 1 << 16
"""... if they have no more characters than this."""


class Remembered:
    """The tokens of the texts that were asked for last.

    Siblings encode the same problem, chunks and template: without this, a small model's rollout
    spends more than half its time there.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool], tuple[int, ...]] = {}
        self._lock = Lock()

    def __contains__(self, text: tuple[str, bool]) -> bool:
        return text in self._kept

    def get(self, text: tuple[str, bool]) -> tuple[int, ...] | None:
        """Return the tokens of a text, if they are known; it is then forgotten last."""
        with self._lock:
            ids = self._kept.pop(text, None)
            if ids is not None:
                self._kept[text] = ids
            return ids

    def put(self, text: tuple[str, bool], ids: tuple[int, ...]) -> None:
        """Keep the tokens of a text in place of the one asked for longest ago."""
        with self._lock:
            self._kept[text] = ids
            while len(self._kept) > REMEMBERED:
                del self._kept[next(iter(self._kept))]


class HFTokenizer:
    """A transformers tokenizer as `rendering.Tokenizer`."""

    def __init__(self, hf: Any, vocab_size: int, end_ids: Sequence[int]) -> None:
        self.hf = hf
        self.vocab_size = vocab_size
        self.end_ids = tuple(end_ids)
        self._inner = _inner(hf)
        self._spelling = spelling_of(self._inner) if self._inner else None
        self._remembered = Remembered()

    def encode(self, text: str, control: bool = False) -> list[int]:
        """Encode text; control tokens are recognised only if `control`."""
        if len(text) > LONGEST_REMEMBERED:
            return list(self._encode(text, control))
        ids = self._remembered.get((text, control))
        if ids is None:
            ids = self._encode(text, control)
            self._remembered.put((text, control), ids)
        return list(ids)

    def encode_ahead(self, texts: Sequence[str]) -> None:
        """Encode texts that are asked for soon, on all cores."""
        known = self._remembered
        texts = [t for t in texts if len(t) <= LONGEST_REMEMBERED and (t, False) not in known]
        if self._inner is None or len(texts) < 2:
            return
        found = _encoded(self._inner, [storable(text) for text in texts], False)
        for text, ids in zip(texts, found, strict=True):
            known.put((text, False), ids)

    def _encode(self, text: str, control: bool) -> tuple[int, ...]:
        if self._inner:
            return _encoded(self._inner, [storable(text)], control)[0]
        encoded = self.hf(
            storable(text), add_special_tokens=False, split_special_tokens=not control
        )
        return tuple(encoded.input_ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode to text, leaving control tokens out."""
        if self._spelling is not None:
            return self._spelling.decode(ids)
        if self._inner:
            return str(self._inner.decode(list(ids), skip_special_tokens=True))
        # An array: of a list, transformers looks at every element's type.
        return self.hf.decode(np.array(ids, dtype=np.int64), skip_special_tokens=True)

    def decode_control(self, token_id: int) -> str:
        """Return the text of one token, a control token included."""
        return self.hf.decode([token_id])

    def template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], prompt: bool
    ) -> str:
        """Apply the chat template; `prompt` opens the assistant's next turn."""
        return self.hf.apply_chat_template(
            list(messages), tools=list(tools) or None, tokenize=False, add_generation_prompt=prompt
        )


ENCODING = Lock()
PROBE = " Hello ,\n\n  w\u00f6rld 12,345 . I don't\t\u6f22\u5b57 \U0001f642 </s> {} "


def _inner(hf: Any) -> Any:
    """Return what a fast tokenizer works with inside, if that alone gives the same: in less time.

    A class of transformers may change texts before or after.
    """
    if not hf.is_fast:
        return None
    inner = hf.backend_tokenizer
    inner.no_truncation()
    inner.no_padding()
    text = PROBE.format(hf.eos_token)
    for control in (False, True):
        ids = list(_encoded(inner, [text], control)[0])
        own = hf(text, add_special_tokens=False, split_special_tokens=not control).input_ids
        said = inner.decode(ids, skip_special_tokens=True)
        if ids != list(own) or said != hf.decode(ids, skip_special_tokens=True):
            return None
    return inner


def _encoded(inner: Any, texts: list[str], control: bool) -> list[tuple[int, ...]]:
    # The setting is the tokenizer's, not the call's: another thread must not change it in between.
    with ENCODING:
        inner.encode_special_tokens = not control
        found = inner.encode_batch_fast(texts, add_special_tokens=False)  # without offsets
    return [tuple(encoded.ids) for encoded in found]


class CountingTokenizer(HFTokenizer):
    """Encode text with the `tokenizers` library, and load the rest only if it is asked for."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._folder = folder
        self._core = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._core.encode_special_tokens = True  # text that spells a control token is text
        self._inner = self._spelling = None
        self._remembered = Remembered()

    def __getattr__(self, name: str) -> Any:
        if name not in ("hf", "vocab_size", "end_ids"):
            raise AttributeError(name)
        whole = load_tokenizer(self._folder)
        self.hf, self.vocab_size, self.end_ids = whole.hf, whole.vocab_size, whole.end_ids
        return getattr(whole, name)

    def _encode(self, text: str, control: bool) -> tuple[int, ...]:
        if control:
            return super()._encode(text, control)
        return tuple(self._core.encode(text, add_special_tokens=False).ids)


def load_counter(folder: Path) -> HFTokenizer:
    """Load a tokenizer that counts within milliseconds, where the folder has the usual files."""
    if (folder / "tokenizer.json").exists() and (folder / "chat_template.jinja").exists():
        with loading(folder):
            return CountingTokenizer(folder)
    return load_tokenizer(folder)


def load_tokenizer(folder: Path) -> HFTokenizer:
    """Load a folder's tokenizer, with every token that ends a turn."""
    from transformers import AutoConfig  # seconds, and torch with it

    with loading(folder):
        hf = _kind(folder).from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            clean_up_tokenization_spaces=False,  # text is what the tokens say, space for space
        )
        whole = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        config = whole.get_text_config()
    if not hf.chat_template:
        raise UserError(
            f"the tokenizer in {folder} has no chat template",
            "use an instruct model, or put a chat_template.jinja into the folder",
        )
    ends = list(dict.fromkeys(e for e in (hf.eos_token_id, *_more_ends(folder)) if e is not None))
    if not ends:
        raise UserError(
            f"the tokenizer in {folder} has no end token", "set eos_token in tokenizer_config.json"
        )
    tokenizer = HFTokenizer(hf, config.vocab_size, ends)
    with loading(folder):
        Renderer(tokenizer).opening([user("Hello")])  # a chat template that fails does so here
    return tokenizer


def _kind(folder: Path) -> Any:
    """Return what loads a folder's tokenizer: a file that is whole is taken as it is.

    transformers would make Qwen2's usual tokenizer for every model of that architecture.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = folder / "tokenizer_config.json"
    said = read_json(path, FOLDER).get("tokenizer_class") if path.exists() else None
    whole = said in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return PreTrainedTokenizerFast if whole else AutoTokenizer


def _more_ends(folder: Path) -> list[int]:
    """Return the tokens that end a turn beside the tokenizer's own."""
    path = folder / "generation_config.json"
    if not path.exists():
        return []
    fix = "restore the file, or delete it: the tokenizer has an end token of its own"
    more = read_json(path, fix).get("eos_token_id") or []
    more = more if isinstance(more, list) else [more]
    if not all(isinstance(end, int) and not isinstance(end, bool) for end in more):
        raise UserError(f"{path}: eos_token_id is {more!r}", fix)
    return more


def check_folder(path: str, setting: str = "model.path") -> Path:
    """Return the model folder, or say what is wrong with it."""
    folder = Path(path).expanduser()
    if not folder.is_dir() and HUB.fullmatch(path) and not folder.parent.is_dir():
        folder = _from_hub(path, setting)
    if not path or not folder.is_dir():
        raise UserError(
            f"there is no model folder at {path!r}",
            f"give --{setting} a folder that holds config.json, *.safetensors and a tokenizer",
        )
    if not (folder / "config.json").exists():
        raise UserError(f"{folder} holds no config.json", FOLDER)
    _refuse_code(folder)
    refuse_pickles(folder)
    return folder


def _from_hub(name: str, setting: str) -> Path:
    """Return the folder of a model of the hub: from its cache here, or downloaded."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(WANTED)))
    except Exception as error:  # the network, the hub and its cache fail in many ways
        why = first_line(error)
        raise UserError(
            f"{name!r} is not a folder here, and the hub gave no model of that name: {why}",
            f"check the name and the network, or download the model and give --{setting} its"
            " folder",
        ) from None


def _refuse_code(folder: Path) -> None:
    """Refuse a model that only code in its own folder can build; such code is never run."""
    with loading(folder):
        told = read_json(folder / "config.json", FOLDER)
        named = told.get("auto_map") or {}
    if not named:
        return
    from transformers import CONFIG_MAPPING

    if told.get("model_type") not in CONFIG_MAPPING:
        raise UserError(
            f"the model in {folder} needs code of its own ({next(iter(named.values()))}), which is"
            " never run",
            "choose a model whose architecture transformers itself has",
        )


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Say what is wrong with a model folder that transformers cannot load."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # transformers and safetensors raise whatever they meet
        held = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise UserError(
            f"the model in {folder} cannot be loaded: {first_line(error)}",
            "give a folder that holds config.json, whole *.safetensors and a tokenizer;"
            f" this one holds {held}",
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind if the message is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
