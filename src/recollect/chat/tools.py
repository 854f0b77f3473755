"""Tools: typed Python functions that a model may call, and the box that answers its calls.

Whatever a model writes is answered with text: a result, or what was wrong. Knows nothing of chats,
of how calls are written, or of memories.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from recollect.chat.tool_types import WrongKind, check, excerpt, read_text, schema_of
from recollect.errors import BoundaryError, UserError
from recollect.foreign import storable

Truncation = Literal["head", "tail", "middle"]
Outcome = Literal["ok", "failed", "malformed", "refused"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class ToolFailed(Exception):
    """A tool could not do what was asked; the message is the answer."""


@dataclass(frozen=True)
class Limits:
    """What a chat with tools may use up."""

    max_assistant_turns: int = 16
    max_turn_tokens: int = 1024
    """Tokens of one assistant turn."""
    max_context_tokens: int | None = None
    """Tokens of the whole chat, prompt included; None leaves it to the model's window."""
    min_reply_tokens: int = 64
    """A tool's response must leave this much room for what the model says to it."""
    max_parallel_calls: int = 1
    """Calls carried out of one turn; the others are answered with this limit."""
    max_tool_response_length: int = 4096
    """Characters of one tool response."""
    truncation: Truncation = "middle"
    """Keep a long response's head, its tail, or both and cut the middle."""

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, int) and value < 1:
                flag = spec.name.replace("_", "-")
                raise UserError(
                    f"{spec.name} is {value}", f"set --agent.limits.{flag} to 1 or more"
                )
        if self.truncation not in get_args(Truncation):
            raise UserError(f"truncation is {self.truncation!r}", "choose head, tail or middle")


@dataclass(frozen=True)
class Parameter:
    """One argument of a tool."""

    name: str
    kind: Any
    """Its type: str, int, float, bool, a Literal, or lists, dicts and optionals of these."""
    description: str = ""
    required: bool = True


@dataclass(frozen=True)
class Tool:
    """A function with what a model must know to call it."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    function: Callable[..., Any]

    @property
    def schema(self) -> dict[str, Any]:
        """Return the description that chat templates and endpoints take."""
        properties = {}
        for parameter in self.parameters:
            note = {"description": parameter.description} if parameter.description else {}
            properties[parameter.name] = {**schema_of(parameter.kind), **note}
        required = [parameter.name for parameter in self.parameters if parameter.required]
        parameters = {"type": "object", "properties": properties, "required": required}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def narrowed(self, hide: Sequence[str] = (), **kinds: Any) -> Tool:
        """Return the tool without some optional parameters, and with other types for some."""
        kept = (p for p in self.parameters if p.name not in hide)
        own = tuple(dataclasses.replace(p, kind=kinds.get(p.name, p.kind)) for p in kept)
        return dataclasses.replace(self, parameters=own)

    async def run(self, arguments: Mapping[str, Any], untyped: bool = False) -> str:
        """Check the arguments, call the function, and return its result as text."""
        result = self.function(**self.checked(arguments, untyped))
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, str):
            return result
        return json.dumps(result, ensure_ascii=False, default=str)

    def checked(self, arguments: Mapping[str, Any], untyped: bool = False) -> dict[str, Any]:
        """Return the arguments as the function takes them, or say all that is wrong with them."""
        known = {parameter.name: parameter for parameter in self.parameters}
        own: dict[str, Any] = {}
        wrong: list[str] = []
        for name, value in arguments.items():
            if name not in known:
                wrong.append(f"there is no argument {excerpt(name)}, only {', '.join(known)}")
                continue
            kind = known[name].kind
            try:
                own[name] = check(kind, read_text(kind, value) if untyped else value)
            except WrongKind as error:
                wrong.append(f"{name} must be {error}")
        needed = [parameter.name for parameter in self.parameters if parameter.required]
        wrong += [f"{name} is missing" for name in needed if name not in arguments]
        if wrong:
            raise ToolFailed(f"Error: {self.name}: {'; '.join(wrong)}")
        return own


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a typed function.

    Its name, types and defaults are the function's; the docstring describes it, and an `Args:`
    section in it describes the arguments. A parameter with a default is optional.
    """
    hints = get_type_hints(function)
    description, notes = _read_docstring(inspect.getdoc(function) or "")
    parameters = []
    for name, spec in inspect.signature(function).parameters.items():
        if name not in hints or spec.kind in (spec.VAR_POSITIONAL, spec.VAR_KEYWORD):
            raise TypeError(f"tool {function.__name__}: parameter {name!r} needs a plain type")
        schema_of(hints[name])  # refuses what a model could not be told
        required = spec.default is inspect.Parameter.empty
        parameters.append(Parameter(name, hints[name], notes.pop(name, ""), required))
    if notes:
        raise TypeError(f"tool {function.__name__} has no parameter {', '.join(notes)}")
    return Tool(function.__name__, description, tuple(parameters), function)


def as_tool(item: Any) -> Tool:
    """Make a tool of a typed function; a tool stays as it is."""
    if isinstance(item, Tool):
        return item
    try:
        return tool(item)
    except (TypeError, NameError, ValueError) as error:
        raise UserError(
            f"{getattr(item, '__qualname__', None) or f'{item!r:.80}'} is not a tool: {error}",
            "write a function whose arguments have types, such as `def look_up(word: str) -> str`",
        ) from error


@dataclass(frozen=True)
class Call:
    """A tool's name and the arguments for it, not checked yet."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    untyped: bool = False
    """Whether all arguments are texts, to be read as the tool's types."""


@dataclass(frozen=True)
class Malformed:
    """A call that cannot be read, and why."""

    problem: str


@dataclass(frozen=True)
class Answer:
    """What a tool message says to one call."""

    text: str
    outcome: Outcome
    tool: str = ""
    """The tool that was called; empty if there is no such tool."""


@dataclass(frozen=True)
class ToolBox:
    """The tools a chat may use, within limits."""

    tools: tuple[Tool, ...]
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if len(set(names)) != len(names):
            raise ValueError(f"two tools have one name: {', '.join(names)}")

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """Return what the chat is opened with."""
        return tuple(tool.schema for tool in self.tools)

    async def answer(self, calls: Sequence[Call | Malformed]) -> list[Answer]:
        """Answer every call of a turn, in order.

        One after another, so that the same reply always does the same.
        """
        answers: list[Answer] = []
        started = 0
        for call in calls:
            if isinstance(call, Call):
                answer = await self._answer(call, started)
                started += 1
            else:
                answer = Answer(f"Error: {call.problem}", "malformed")
            text = shorten(
                storable(answer.text),
                self.limits.max_tool_response_length,
                self.limits.truncation,
            )
            answers.append(dataclasses.replace(answer, text=text))
        return answers

    async def _answer(self, call: Call, started: int) -> Answer:
        found = next((tool for tool in self.tools if tool.name == call.name), None)
        name = found.name if found else ""
        if started >= (most := self.limits.max_parallel_calls):
            text = f"Error: not carried out: at most {most} call{'s' * (most > 1)} per turn"
            return Answer(text, "refused", name)
        if found is None:
            known = ", ".join(tool.name for tool in self.tools) or "none"
            return Answer(f"Error: there is no tool {excerpt(call.name)}, only {known}", "failed")
        try:
            return Answer(await found.run(call.arguments, call.untyped), "ok", name)
        except (UserError, BoundaryError):
            raise  # not the model's doing: they concern the run, or the episode
        except ToolFailed as error:
            return Answer(str(error), "failed", name)
        except Exception as error:
            return Answer(f"Error: {name}: {type(error).__name__}: {error}", "failed", name)


def shorten(text: str, limit: int, truncation: Truncation = "middle") -> str:
    """Cut a text to at most `limit` characters, saying how many were left out."""
    if len(text) <= limit:
        return text
    note = f"\n[{len(text) - limit} characters left out]\n"
    room = max(0, limit - len(note))
    note = note[:limit]
    if truncation == "head":
        return text[:room] + note
    if truncation == "tail":
        return note + text[len(text) - room :]
    return text[: room - room // 2] + note + text[len(text) - room // 2 :]


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Part a docstring into its description and the notes under `Args:`."""
    description, _, section = text.partition("\nArgs:\n")
    notes: dict[str, str] = {}
    indent = len(section) - len(section.lstrip(" "))
    name = ""
    for line in section.splitlines():
        if not line.startswith(" " * indent) or not line.strip():
            break  # another section
        if line[indent] != " ":
            name, _, line = line.strip().partition(":")
        notes[name] = f"{notes.get(name, '')} {line.strip()}".strip()
    return " ".join(description.split()), notes
