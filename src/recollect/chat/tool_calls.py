"""Tool calls in a reply: found and read, or answered with what is wrong with them.

Knows the Hermes form that Qwen's templates teach (a JSON object between `<tool_call>` tags), the
`<function=...>` form of newer ones between the same tags, and, through transformers, whatever form
a tokenizer declares as its own. Nothing is evaluated, and the time is linear in the text.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, runtime_checkable

from recollect.chat.chat import Chat, Reply
from recollect.chat.rendering import Tokenizer
from recollect.chat.tool_types import excerpt
from recollect.chat.tools import Call, Malformed
from recollect.errors import UserError

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FORM = OPEN + '{"name": ..., "arguments": {...}}' + CLOSE
MAX_CALLS = 32
"""Calls read of one reply; the rest is answered as one."""


@dataclass(frozen=True)
class Parsed:
    """What a reply asks for, in order, and what it says beside."""

    calls: tuple[Call | Malformed, ...] = ()
    text: str = ""


Parse = Callable[[Chat, Reply], Parsed]
"""Read the calls of the reply that a chat has just been given."""


def parse_reply(chat: Chat, reply: Reply) -> Parsed:
    """Read a reply in the form its model's tokenizer declares, or else in the Hermes form."""
    tokenizer = chat.model.renderer.tokenizer
    turn = chat.context.turns[-1]
    if not chat.context.exact:
        return read_calls(reply.text)  # the tokenizer here is not the model's
    if isinstance(tokenizer, DeclaresForm) and getattr(tokenizer.hf, "response_template", None):
        prompt = chat.context.ids[: turn.start]
        return _read_declared(tokenizer.hf, turn.token_ids, prompt, chat.tools)
    text = reply.text
    if OPEN not in text and _stray(text):
        text = _with_control(tokenizer, reply.token_ids)
    # Some templates open the thinking in the prompt; then only its end is in the reply.
    tail = tokenizer.decode(chat.context.ids[max(0, turn.start - 8) : turn.start])
    return read_calls(text, thinking=tail.rstrip().endswith("<think>"))


def read_calls(text: str, thinking: bool = False) -> Parsed:
    """Read the calls between tags; a call inside the model's thinking is ignored."""
    if thinking or text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    calls: list[Call | Malformed] = []
    said: list[str] = []
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        said.append(text[at:start])
        if len(calls) == MAX_CALLS:
            calls.append(Malformed(f"only the first {MAX_CALLS} calls of a reply are read"))
            at = len(text)
            break
        call, at = _read_call(text, start + len(OPEN))
        calls.append(call)
    said.append(text[at:])
    rest = "".join(said)
    return Parsed((*calls, *_stray(rest)), rest.strip())


def _with_control(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode with the control tokens in the text: to some models the tags are such tokens."""
    pieces: list[str] = []
    plain: list[int] = []
    for id in ids:
        if tokenizer.decode([id]):
            plain.append(id)
            continue
        pieces += [tokenizer.decode(plain), tokenizer.decode_control(id)]
        plain = []
    return "".join((*pieces, tokenizer.decode(plain)))


# Inside the tags


class _Bad(Exception):
    """What is wrong with a call."""


def _read_call(text: str, at: int) -> tuple[Call | Malformed, int]:
    """Read the call that starts at `at`; return it and where the text continues."""
    read = _read_function if text.startswith("<function=", _skip(text, at)) else _read_json
    try:
        call, end = read(text, _skip(text, at))
        end = _skip(text, end)
        if text.startswith(CLOSE, end):
            return call, end + len(CLOSE)
        # Models forget the closing tag; where the call ends is plain all the same.
        if end == len(text) or text.startswith(OPEN, end):
            return call, end
        raise _Bad(f"after the call stands {excerpt(text[end : end + 61])} instead of {CLOSE}")
    except _Bad as error:
        return Malformed(str(error)), _next_tag(text, at)


def _next_tag(text: str, at: int) -> int:
    """Return where to continue after a broken call: behind its closing tag, or at the next call."""
    close, following = text.find(CLOSE, at), text.find(OPEN, at)
    if close >= 0 and (following < 0 or close < following):
        return close + len(CLOSE)
    return following if following >= 0 else len(text)


def _skip(text: str, at: int) -> int:
    """Return the first position from `at` that is not white space."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)  # NaN and Infinity are not JSON


def _read_json(text: str, at: int) -> tuple[Call, int]:
    if not text.startswith("{", at):
        raise _Bad(f"{excerpt(text[at : at + 61])} is not a JSON object; write {FORM}")
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        near = excerpt(text[max(at, error.pos - 20) : error.pos + 20])
        raise _Bad(f"the JSON is broken near {near}: {error.msg}") from None
    except RecursionError:
        raise _Bad("the JSON is nested too deeply") from None
    except ValueError as error:
        raise _Bad(f"the JSON is broken: {error}") from None
    return _call_of(value), end


def _call_of(value: Any) -> Call:
    """Take a decoded call apart; OpenAI's wrapping and arguments in a string are understood."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise _Bad(f'a call needs "name", the name of a tool; write {FORM}')
    rest = {key: v for key, v in value.items() if key != "name"}
    arguments = rest.get("arguments", rest.get("parameters", None if rest else {}))
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            raise _Bad('"arguments" must be a JSON object') from None
    if not isinstance(arguments, dict):
        raise _Bad(f'the arguments stand in "arguments", as a JSON object; write {FORM}')
    return Call(name.strip(), arguments)


def _read_function(text: str, at: int) -> tuple[Call, int]:
    """Read `<function=NAME><parameter=KEY>text</parameter>...</function>`."""
    name, at = _until(text, at + len("<function="), ">")
    if not name.strip() or "<" in name:
        raise _Bad("<function=...> does not name a tool")
    arguments: dict[str, Any] = {}
    while text.startswith("<parameter=", at := _skip(text, at)):
        key, at = _until(text, at + len("<parameter="), ">")
        value, at = _until(text, at, "</parameter>")
        arguments[key.strip()] = value.strip("\n")
    if not text.startswith("</function>", at):
        raise _Bad(f"{excerpt(text[at : at + 61])} is neither a <parameter=...> nor </function>")
    return Call(name.strip(), arguments, untyped=True), at + len("</function>")


def _until(text: str, at: int, mark: str) -> tuple[str, int]:
    end = text.find(mark, at)
    if end < 0:
        raise _Bad(f"{mark!r} is missing after {excerpt(text[at : at + 61])}")
    return text[at:end], end + len(mark)


def _stray(text: str) -> list[Malformed]:
    """Notice what was meant as a call but is outside the tags, or in broken tags."""
    lowered = text.lower()
    if "<tool_call" in lowered or "tool_call>" in lowered:
        return [Malformed(f"a tag is broken or stands alone; write {FORM}")]
    if '"name"' in text and '"arguments"' in text:
        return [Malformed(f"a call must stand between tags; write {FORM}")]
    return []


# The forms that transformers knows


@runtime_checkable
class DeclaresForm(Protocol):
    """A tokenizer made from one of transformers'; its `response_template` may be None."""

    hf: Any


def _read_declared(hf: Any, ids: tuple[int, ...], prompt: Sequence[int], tools: Any) -> Parsed:
    if "tools" not in inspect.signature(hf.parse_response).parameters:
        raise UserError(
            "the tokenizer declares a form of tool calls that this transformers cannot read",
            "install transformers 5.16 or newer",
        )
    try:
        message = hf.parse_response(list(ids), prefix=prompt, tools=list(tools))
    except Exception as error:  # whatever a model writes, it is answered
        return Parsed((Malformed(f"the call cannot be read: {excerpt(str(error), 300)}"),))
    calls: list[Call | Malformed] = []
    for value in (message.get("tool_calls") or [])[:MAX_CALLS]:
        try:
            calls.append(_call_of(value))
        except _Bad as error:
            calls.append(Malformed(str(error)))
    text = str(message.get("content") or "")
    return Parsed((*calls, *_stray(text)), text)
