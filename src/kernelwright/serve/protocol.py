"""The requests and errors of OpenAI's completions endpoints, as far as a small model can serve them."""

from __future__ import annotations

import secrets
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kernelwright.inference.sampling import Sampling

TEMPERATURE = 0.8
"""The default of a request, as in the checkpoints' generation_config.json."""
MAX_TOKENS = 2048


class ApiError(Exception):
    """An error in OpenAI's shape."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class StreamOptions(BaseModel):
    """`include_usage`: one more event at the end, with the usage and no choices."""

    include_usage: bool = False


class _OpenRequest(BaseModel):
    """The fields common to both endpoints. Unknown fields are ignored, unless `unsupported` names them."""

    model_config = ConfigDict(extra="allow")

    model: str
    n: int = Field(default=1, ge=1, le=128)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    stop: list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        stops = [value] if isinstance(value, str) else value
        if isinstance(stops, list) and any(s == "" for s in stops):
            raise ValueError("a stop text is empty")
        return stops

    def unsupported(self) -> str | None:
        """Returns the name of a field that asks for something this server cannot do, or None."""
        extra = self.model_extra or {}
        empty: dict[str, tuple[Any, ...]] = {
            "tools": (None, []),
            "functions": (None, []),
            "response_format": (None, {"type": "text"}),
            "presence_penalty": (None, 0),
            "frequency_penalty": (None, 0),
            "logit_bias": (None, {}),
            "best_of": (None, 1, self.n),
            "echo": (None, False),
            "suffix": (None, ""),
            "top_logprobs": (None, 0),
            "audio": (None,),
        }
        return next((name for name, allowed in empty.items() if extra.get(name) not in allowed), None)

    def limit(self) -> int:
        """Returns the bound on an answer's tokens."""
        return self.max_tokens or MAX_TOKENS

    def samplings(self) -> list[Sampling]:
        """Returns the settings of each of `n` answers; their seeds count up from the request's, random without one."""
        first = secrets.randbits(48) if self.seed is None else self.seed
        common = {
            "temperature": TEMPERATURE if self.temperature is None else self.temperature,
            "top_p": self.top_p or 1.0,
            "top_k": max(0, self.top_k or 0),
            "max_tokens": self.limit(),
            "stop": tuple(self.stop or ()),
        }
        return [Sampling(seed=first + i, **common) for i in range(self.n)]  # type: ignore[arg-type]


class ChatMessage(BaseModel):
    """One message; a list of content parts is accepted where all parts are text."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in value):
            return "".join(str(p.get("text", "")) for p in value)
        return "" if value is None else value


class ChatRequest(_OpenRequest):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    logprobs: bool = False
    max_completion_tokens: int | None = Field(default=None, ge=1)

    def limit(self) -> int:
        return self.max_completion_tokens or self.max_tokens or MAX_TOKENS


class CompletionRequest(_OpenRequest):
    """`POST /v1/completions`. A prompt may spell out special tokens."""

    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=5)

    @field_validator("prompt")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if value == []:
            raise ValueError("an empty list asks for nothing")
        return value

    def prompts(self) -> list[str | list[int]]:
        """Returns the prompts as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]  # type: ignore[list-item]
        return list(self.prompt)  # type: ignore[arg-type]
