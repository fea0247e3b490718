"""What a chat stream is made of. Ends in exactly one Done or Failed."""

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn, content parts already merged to text. `developer` has become `system`."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A validated question. `messages` ends with a user turn. How to sample: see model_runtime.request.Sampling."""

    id: str
    messages: tuple[Message, ...] = field(repr=False)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """A post that stands behind `[number]`. Numbers start at 1 and are those of the prompt."""

    number: int
    post_id: str
    url: str
    title: str  # "Name (@handle)"
    author_name: str
    author_handle: str
    source: str
    created_ms: int
    snippet: str  # screened text, at most 200 code points


@dataclass(frozen=True, slots=True)
class Marked:
    """A citation's marker in the answer: code-point offsets of "[n]", end exclusive."""

    citation: Citation
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Searching:
    posts: int  # live posts in the index


@dataclass(frozen=True, slots=True)
class Sources:
    """The posts that were put into the prompt. `newest_age_ms` None: there is no evidence."""

    citations: tuple[Citation, ...]
    newest_age_ms: int | None


@dataclass(frozen=True, slots=True)
class Delta:
    """Screened text, and the markers that lie wholly inside it."""

    text: str
    marks: tuple[Marked, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader should know that is not part of the answer, e.g. `post_removed`."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Done:
    """`cited` are the citations whose marker is in the answer and whose post still existed when it ended; `removed`
    the numbers of those posts, cited or not, that no longer did."""

    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cited: tuple[Citation, ...] = ()
    newest_age_ms: int | None = None
    unsupported_sentences: int = 0
    filter_reason: str = ""
    removed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """`status` is the HTTP status if nothing was sent yet."""

    status: int
    type: str
    code: str
    message: str
    retry_after_s: int | None = None


ChatEvent = Searching | Sources | Delta | Notice | Done | Failed
