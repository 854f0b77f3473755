"""What clients may ask for: OpenAI's request bodies, checked where they come in.

A setting the engine does not have is refused unless it asks for nothing, so that no client believes
in a penalty or a grammar that was never applied. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from recollect.serve.refusal import Refusal

IGNORED = (
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "request_id", "priority"),
)
"""Settings that change nothing about a reply."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "top_k": (-1, 0),
    "min_p": (0,),
    "min_tokens": (0,),
    "best_of": (1,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "ignore_eos": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "chat_template_kwargs": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Settings the engine does not have, and the values with which they ask for nothing."""
MAX_N = 128
MAX_TOP = 20
MANY = 4096
"""Messages, and whatever else a request lists."""
MAX_STOPS, LONGEST_STOP = 16, 256
SMALLEST_TEMPERATURE = 0.01
SHOWN = 100
"""Characters of a name that an error repeats."""

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]


class Body(BaseModel):
    """No field is unknown, no type is bent."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, value: Any) -> Any:
        return _kept(value, cls.model_fields.keys())


def _kept(value: Any, known: Collection[str]) -> Any:
    """Leave one unknown field to complain about: pydantic describes every one of thousands."""
    if not isinstance(value, dict):
        return value
    kept = {name: given for name, given in value.items() if name in known}
    unknown = next((name for name in value if name not in known), None)
    return kept if unknown is None else {**kept, unknown[:SHOWN]: value[unknown]}


class StreamOptions(Body):
    """What a stream tells beside its tokens."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: Literal[False] = False


class GenerationBody(Body):
    """What chats and completions have in common."""

    model: str | None = None
    max_tokens: int | None = Field(None, ge=0)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MAX_N)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: list[int] | None = Field(None, max_length=MAX_STOPS)
    """Tokens that end a reply: those of the model do anyway, and others cannot."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    include_stop_str_in_output: bool = False

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, value: Any) -> Any:
        return _kept(cls._without_neutral(value), cls.model_fields.keys())

    @classmethod
    def _without_neutral(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kept: dict[str, Any] = {}
        for name, given in value.items():
            if name in IGNORED or (name in NEUTRAL and given is None):
                continue
            if name not in NEUTRAL:
                kept[name] = given
            elif given not in NEUTRAL[name]:
                raise ValueError(f"{name} is not supported; leave it out")
        return kept

    @field_validator("temperature")
    @classmethod
    def _not_tiny(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < SMALLEST_TEMPERATURE:
            raise ValueError(f"it must be 0 or at least {SMALLEST_TEMPERATURE}")
        return value

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the texts that end a reply."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if not all(0 < len(text) <= LONGEST_STOP for text in given):
            raise Refusal(f"a stop text has 1 to {LONGEST_STOP} characters", param="stop")
        return tuple(given)


def _check_prompt(value: Any) -> Any:
    """Check by hand what may be a million tokens: pydantic would list every wrong one."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if value and not isinstance(value[0], int) and len(value) > MANY:
            raise ValueError(f"a request may have {MANY} prompts")
        rows = value if value and isinstance(value[0], list) else [value]
        if all(isinstance(row, list) and all(type(i) is int for i in row) for row in rows):
            return value
        if all(isinstance(text, str) for text in value):
            return value
    raise ValueError("it must be a text, token ids, or a list of one of these")


Prompt = Annotated[Any, BeforeValidator(_check_prompt)]


class CompletionAsked(GenerationBody):
    """A body of /v1/completions."""

    prompt: Prompt
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP)
    """0 and 1 tell the logprob of each token; more also the likeliest ones at each place."""
    echo: bool | None = None
    add_special_tokens: bool = True
    """Whether a text gets what the tokenizer puts around every text, such as a start token."""

    @property
    def prompts(self) -> list[Any]:
        """Return the prompts: texts, or lists of tokens."""
        given = self.prompt
        return [given] if isinstance(given, str) or (given and type(given[0]) is int) else given


class Function(Body):
    """What a called function is named, and its arguments as JSON text."""

    name: Name
    arguments: str


class ToolCall(Body):
    """A call in an earlier reply."""

    id: Name
    type: Literal["function"] = "function"
    function: Function
    index: int | None = None


class TextPart(Body):
    """A piece of a content."""

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """A message; what other fields it has (a refusal, audio, annotations) is not shown."""

    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(max_length=MANY, fail_fast=True)] | None = None
    tool_calls: list[ToolCall] | None = Field(None, max_length=MANY, fail_fast=True)
    tool_call_id: Name | None = None
    name: Name | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


Messages = Annotated[list[ChatMessage], Field(min_length=1, max_length=MANY, fail_fast=True)]


class FunctionTool(Body):
    """What a function is for and what it takes."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Literal[False] | None = None


class ToolAsked(Body):
    """A tool that the model may call."""

    type: Literal["function"]
    function: FunctionTool


class Prompted(Body):
    """A chat so far, and the tools in it."""

    messages: Messages
    tools: list[ToolAsked] | None = Field(None, max_length=MANY, fail_fast=True)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools as chat templates take them."""
        return [tool.model_dump(exclude_none=True) for tool in self.tools or []]


class ChatAsked(GenerationBody, Prompted):
    """A body of /v1/chat/completions."""

    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP)
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None


class TokenizeAsked(Body):
    """A body of /tokenize: a text, or a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: list[ToolAsked] | None = Field(None, max_length=MANY, fail_fast=True)
    add_special_tokens: bool = True


class DetokenizeAsked(Body):
    """A body of /detokenize."""

    model: str | None = None
    tokens: Annotated[list[int], FailFast()]


AnyBody = TypeVar("AnyBody", bound=Body)


def read(kind: type[AnyBody], body: bytes) -> AnyBody:
    """Read a request body, or say what is wrong with it."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
    first = max(wrong, key=lambda one: len(one["loc"]))
    if first["type"] == "json_invalid":
        raise Refusal(f"the body is not JSON: {first['ctx']['error']}")
    # Of what a field may be, pydantic names the type it looked at, such as list[TextPart].
    named = (part for part in first["loc"] if part != "str" and "[" not in str(part))
    param = ".".join(map(str, named))
    if first["type"] == "extra_forbidden":
        raise Refusal(f"there is no setting {param!r} here; leave it out", param=param)
    what = first["msg"].removeprefix("Value error, ")
    raise Refusal(f"{param}: {what}" if param else what, param=param or None)
