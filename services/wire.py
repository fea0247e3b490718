"""A chat request as OpenAI's clients send it: checked and turned into a ChatRequest, and the shape of an error.

Knows no HTTP beyond status numbers. What is served, refused and ignored is listed in docs/api.md.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from services.events import ChatRequest, Message
from services.fields import ALLOWED, IGNORED

MODEL_ID = "groundswell"


class ApiError(Exception):
    """Answered as OpenAI's error JSON. `param` is the path of the field, such as `messages.0.content`."""

    def __init__(
        self,
        status: int,
        message: str,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, type, code, param, headers)
        self.status, self.message, self.type, self.code, self.param = status, message, type, code, param
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return f"{self.status} {self.code or self.type}"

    @property
    def body(self) -> dict[str, Any]:
        return error_body(self.message, self.type, self.code, self.param)


def error_body(message: str, type: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    """All four keys, always: the SDKs read each of them."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def _content_kind(value: Any) -> str | None:
    return {str: "<text>", list: "<parts>", type(None): "<null>"}.get(type(value))


def _stop_kind(value: Any) -> str | None:
    return {str: "<text>", list: "<list>", type(None): "<null>"}.get(type(value))


class Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    type: str
    text: str | None = None
    refusal: str | None = None


class Turn(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    # Tags in angle brackets are ours and are left out of an error's path.
    content: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[list[Part], Tag("<parts>")] | Annotated[None, Tag("<null>")],
        Discriminator(
            _content_kind,
            custom_error_type="content_type",
            custom_error_message="Input should be a string or a list of content parts",
        ),
    ] = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    include_usage: bool | None = None


class Extras(BaseModel):
    """Our own extension of the request. `progress`: send headers at the first event and show the search going on."""

    model_config = ConfigDict(strict=True, extra="forbid")
    progress: bool = False


TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]
MOST_BIASES = 1024


class ChatBody(BaseModel):
    """The fields that are served. The others are extras, judged by `ALLOWED` or ignored."""

    model_config = ConfigDict(strict=True, extra="allow")
    model: str
    messages: list[Turn] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[TokenId, Bias] | None = Field(None, max_length=MOST_BIASES)
    # As vLLM and others take them.
    top_k: int | None = Field(None, ge=-1, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    stop: Annotated[
        Annotated[str, Tag("<text>")]
        | Annotated[list[str], Field(max_length=4), Tag("<list>")]
        | Annotated[None, Tag("<null>")],
        Discriminator(
            _stop_kind,
            custom_error_type="stop_type",
            custom_error_message="Input should be a string or a list of up to 4 strings",
        ),
    ] = None
    groundswell: Extras | None = None


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A checked request and how its answer is to be sent. `unknown_fields` counts what was ignored without a rule."""

    request: ChatRequest = field(repr=False)
    stream: bool
    include_usage: bool
    progress: bool
    unknown_fields: int


def read_chat(raw: Any, max_messages: int) -> ChatCall:
    """The decoded JSON body as a ChatCall; ApiError 400 or 404 if it cannot be served."""
    if not isinstance(raw, dict):
        raise ApiError(400, "The body should be a JSON object.", code="invalid_type")
    messages = raw.get("messages")
    if isinstance(messages, list) and len(messages) > max_messages:
        message = f"Invalid 'messages': {len(messages)} messages, the limit is {max_messages}."
        raise ApiError(400, message, code="array_above_max_length", param="messages")
    try:
        body = ChatBody.model_validate(raw)
    except ValidationError as error:
        raise first_fault(error) from None
    extras = body.model_extra or {}
    for name, allowed in ALLOWED.items():
        if name in extras and extras[name] not in allowed:
            raise ApiError(400, f"This value of '{name}' is not supported.", code="unsupported_value", param=name)
    if body.model != MODEL_ID:
        raise unknown_model(body.model)
    request = ChatRequest(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        messages=_messages(body.messages),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias=tuple((int(token_id), bias) for token_id, bias in (body.logit_bias or {}).items()),
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        repetition_penalty=body.repetition_penalty or 1.0,
        stop=tuple(stop for stop in ([body.stop] if isinstance(body.stop, str) else body.stop or []) if stop),
    )
    return ChatCall(
        request=request,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        progress=bool(body.groundswell and body.groundswell.progress),
        unknown_fields=len(extras.keys() - ALLOWED.keys() - IGNORED),
    )


def unknown_model(model: str) -> ApiError:
    message = f"The model `{model[:100]}` does not exist or you do not have access to it."
    return ApiError(404, message, code="model_not_found", param="model")


def first_fault(error: ValidationError) -> ApiError:
    """The first fault, in words that never repeat what was sent."""
    fault = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(step) for step in fault["loc"] if not str(step).startswith("<"))
    if fault["type"] == "missing":
        return ApiError(400, f"Missing required parameter: '{path}'.", code="missing_required_parameter", param=path)
    code = "invalid_type" if fault["type"].endswith("_type") else "invalid_value"
    return ApiError(400, f"Invalid '{path}': {fault['msg']}.", code=code, param=path)


def _messages(turns: list[Turn]) -> tuple[Message, ...]:
    """System and developer turns merged, in order, into one that leads: chat templates take no other."""
    system: list[str] = []
    spoken: list[Message] = []
    for number, turn in enumerate(turns):
        text = _text(turn, f"messages.{number}.content")
        if turn.role in ("system", "developer"):
            system.append(text)
        elif turn.role == "user" or turn.role == "assistant":
            spoken.append(Message(turn.role, text))
        else:
            spoken.append(Message("tool", text))
    last = f"messages.{len(turns) - 1}"
    if not spoken or spoken[-1].role != "user":
        raise ApiError(400, "The last message should come from the user.", code="invalid_value", param=f"{last}.role")
    if not spoken[-1].text.strip():
        raise ApiError(400, "The last message is empty.", code="invalid_value", param=f"{last}.content")
    lead = (Message("system", "\n\n".join(text for text in system if text)),) if any(system) else ()
    return (*lead, *spoken)


def _text(turn: Turn, path: str) -> str:
    if isinstance(turn.content, str):
        return turn.content
    if turn.content is None:
        if turn.role == "assistant" and (turn.tool_calls or turn.function_call or turn.refusal):
            return turn.refusal or ""
        raise ApiError(400, f"Missing required parameter: '{path}'.", code="missing_required_parameter", param=path)
    return "\n".join(_part_text(part, turn.role, f"{path}.{number}") for number, part in enumerate(turn.content))


def _part_text(part: Part, role: str, path: str) -> str:
    """Parts are separate thoughts in the clients that send them: they are joined by a line break."""
    if part.type == "text" and part.text is not None:
        return part.text
    if part.type == "refusal" and role == "assistant" and part.refusal is not None:
        return part.refusal
    if part.type in ("text", "refusal"):
        missing = f"{path}.{part.type}"
        raise ApiError(
            400, f"Missing required parameter: '{missing}'.", code="missing_required_parameter", param=missing
        )
    raise ApiError(
        400,
        f"Invalid '{path}.type': only text is understood here.",
        code="unsupported_value",
        param=f"{path}.type",
    )
