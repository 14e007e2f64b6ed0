"""A policy behind any endpoint that speaks OpenAI's chat completions.

Plain HTTP with retries, a bound on concurrency, a count of tokens and cost, and a cache by request, so that a rerun
sends nothing twice. The API key comes from KERNELWRIGHT_API_KEY or OPENAI_API_KEY; it is neither logged nor part of a
cache key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx

from kernelwright.config import number_of_environment
from kernelwright.errors import ConfigError, PolicyError, StoreError
from kernelwright.policies.base import Answer
from kernelwright.records import Message, Task, Usage

RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
LOOK_SECONDS = 0.3
"""Interval at which a waiting thread checks whether the policy was stopped."""
MOST_BYTES = 64 << 20
"""The bound on a reply's size; a larger reply is an error."""
MOST_TOKENS = 2**40
"""The bound on a token count in a reply; a larger one counts as 0."""
CHECK = "check that the address is that of chat completions, and what the server's own log says"
BOUNDS = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "max_tokens": (1, 2**31),
    "timeout": (0.001, 86_400.0),
    "retries": (0, 1000),
    "first_wait": (0.0, 86_400.0),
    "concurrency": (1, 1000),
    "price_in": (0.0, 1e9),
    "price_out": (0.0, 1e9),
}
"""Least and greatest value of each setting."""


STOPPING_SECONDS = 15.0
"""Seconds that Ctrl-C waits for a reply on its way, which may have been paid for."""
REACH_SECONDS = 0.8
"""Seconds after which a first connection that does not come about is reported."""


OPENAI_HOST = "api.openai.com"
"""The endpoint that is known to need a key; others may answer without one."""


@dataclass(frozen=True)
class EndpointSettings:
    """Sampling and HTTP settings. Prices are in US dollars per million tokens, None where the user states none.

    `timeout` and `first_wait` are in seconds; the wait doubles with every retry.
    """

    temperature: float = 0.8
    top_p: float | None = None
    max_tokens: int = 8192
    timeout: float = 300.0
    retries: int = 5
    first_wait: float = 1.0
    concurrency: int = 8
    price_in: float | None = None
    price_out: float | None = None

    @classmethod
    def from_environment(cls) -> EndpointSettings:
        """Reads KERNELWRIGHT_<FIELD> for each field. Raises `ConfigError` for a value out of range or not a number."""
        values: dict[str, Any] = {}
        for name, kind in cls.__annotations__.items():
            values[name] = number_of_environment(f"KERNELWRIGHT_{name.upper()}", *BOUNDS[name], kind == "int")
        return cls(**{name: value for name, value in values.items() if value is not None})


class OpenAIPolicy:
    """A model behind an HTTP endpoint. Threads may share one policy, until it is stopped."""

    def __init__(
        self, model: str, base_url: str, settings: EndpointSettings | None = None, cache: Path | None = None
    ) -> None:
        self.name = f"openai:{model}"
        self.model = model
        base = base_url.rstrip("/")
        self.url = f"{base if base.endswith('/v1') else base + '/v1'}/chat/completions"
        self.settings = settings or EndpointSettings()
        self.cache = cache
        self.spent = Usage()
        self._slots = threading.Semaphore(self.settings.concurrency)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._interrupted = False
        self._reached = threading.Event()
        """Set once a connection has come about, or the first one was reported as slow."""
        self._client = httpx.Client(
            timeout=httpx.Timeout(self.settings.timeout, connect=min(20, self.settings.timeout))
        )

    @classmethod
    def from_spec(
        cls, spec: str, cache: Path | None, *, temperature: float | None = None, top_p: float | None = None
    ) -> OpenAIPolicy:
        """Makes the policy for `MODEL@BASE_URL`; without a URL, OPENAI_BASE_URL or OpenAI's own.

        Raises `ConfigError` for a spec without a model, with no valid address, or for OpenAI's own without a key.
        """
        model, _, url = spec.rpartition("@") if "@" in spec else (spec, "", "")
        url = url or os.environ.get("OPENAI_BASE_URL") or f"https://{OPENAI_HOST}/v1"
        if not model or not _is_address(url):
            raise ConfigError(
                f"openai:{spec} names no model and endpoint", hint="write openai:MODEL@http://HOST:PORT/v1"
            )
        if httpx.URL(url).host == OPENAI_HOST and not _key():
            raise ConfigError(
                "no API key is set for OpenAI's endpoint", hint="set KERNELWRIGHT_API_KEY or OPENAI_API_KEY"
            )
        settings = EndpointSettings.from_environment()
        if temperature is not None:
            settings = replace(settings, temperature=temperature)
        if top_p is not None:
            settings = replace(settings, top_p=top_p)
        return cls(model, url, settings, cache)

    @property
    def parallel(self) -> int:
        """The number of concurrent requests."""
        return self.settings.concurrency

    def generate(
        self, messages: Sequence[Message], *, seed: int, task: Task | None = None, temperature: float | None = None
    ) -> Answer:
        """Returns one answer, from the cache or the endpoint. Raises `PolicyError` when all retries fail."""
        body = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "temperature": self.settings.temperature if temperature is None else temperature,
            "max_tokens": self.settings.max_tokens,
            "seed": seed,
        }
        if self.settings.top_p is not None:
            body["top_p"] = self.settings.top_p
        key = hashlib.sha256(json.dumps([self.url, body], sort_keys=True).encode()).hexdigest()
        kept = self._cached(key)
        if kept is not None:
            return kept
        started = time.monotonic()
        with self._slot():
            reply = self._post(body)
        answer = self._answer(reply, time.monotonic() - started)
        self._keep(key, answer)
        self._account(answer.usage)
        if self._interrupted:
            raise KeyboardInterrupt
        return answer

    def stop(self) -> None:
        """Stops asking. Threads that wait for an answer, a free slot or the next retry get a `PolicyError`."""
        self._stopped.set()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise PolicyError(f"stopped before {self.url} had answered")

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        """Holds one of the `concurrency` slots."""
        while not self._slots.acquire(timeout=LOOK_SECONDS):
            self._check()
        try:
            self._check()
            yield
        finally:
            self._slots.release()

    def _send(self, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        """Sends one request in a thread of its own.

        A thread that reads from a silent endpoint cannot be woken; after `stop` its caller need not wait for it.
        """
        done: Future[httpx.Response] = Future()

        def send() -> None:
            try:
                done.set_result(self._fetch(body, headers))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=send, name="request", daemon=True).start()
        try:
            while not wait([done], LOOK_SECONDS).done:
                self._check()
        except KeyboardInterrupt:
            print("stopping once the reply has come; Ctrl-C again stops at once", file=sys.stderr, flush=True)
            self._interrupted = True
            if not wait([done], STOPPING_SECONDS).done:
                raise
        return done.result()

    def _fetch(self, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        """Reads a whole reply within `timeout` and `MOST_BYTES`, since a server may stream without end."""
        ends = time.monotonic() + self.settings.timeout
        parts: list[bytes] = []
        size = 0
        with self._client.stream("POST", self.url, json=body, headers=headers) as response:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise PolicyError(f"{self.url} answered with more than {MOST_BYTES >> 20} MB", hint=CHECK)
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout("the reply did not come to an end")
            kept = {k: v for k, v in response.headers.items() if k in ("content-type", "retry-after")}
            return httpx.Response(response.status_code, headers=kept, content=b"".join(parts))

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Sends with retries until a status outside `RETRIED` comes; backs off exponentially, or by `retry-after`."""
        key = _key()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._reach()
        problem = ""
        for attempt in range(self.settings.retries + 1):
            pause = self.settings.first_wait * 2**attempt * (0.75 + random.random() / 2)
            try:
                response = self._send(body, headers)
            except httpx.TimeoutException:
                problem = f"no answer within {self.settings.timeout:g} s"
            except httpx.HTTPError as error:
                problem = f"{error or type(error).__name__}"
            else:
                if response.status_code not in RETRIED:
                    return self._read(response)
                problem = f"status {response.status_code}: {_detail(response)}"
                pause = _stated_wait(response) or pause
            if self._interrupted:
                raise KeyboardInterrupt
            if attempt < self.settings.retries:
                self._stopped.wait(min(pause, 60.0))
                self._check()
        raise PolicyError(
            f"{self.url} gave no answer after {self.settings.retries + 1} tries: {problem}",
            hint="check that the server runs and the address is right; finished turns are kept, so run again to go on",
        )

    def _reach(self) -> None:
        """Before the first request: tries to connect. Raises `PolicyError` where the host is unknown or refuses.

        Retries are for a server that has answered once. A connection that takes long is reported and waited for. Behind
        a proxy the host itself need not be in reach, and nothing is tried.
        """
        with self._lock:
            if self._reached.is_set():
                return
            address = httpx.URL(self.url)
            if {address.scheme, "all"} & getproxies().keys() and not proxy_bypass(address.host):
                self._reached.set()
                return
            port = address.port or (443 if address.scheme == "https" else 80)
            tried: Future[None] = Future()
            threading.Thread(target=_connect, args=(address.host, port, tried), name="reach", daemon=True).start()
            if not wait([tried], REACH_SECONDS).done:
                print(f"{address.host} port {port}: no connection yet, still trying", file=sys.stderr, flush=True)
                self._reached.set()
                return
            error = tried.exception()
            if error is not None:
                raise PolicyError(
                    f"{address.host} port {port} cannot be reached: {error}",
                    hint="check that the server runs and the address is right",
                )
            self._reached.set()

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        if response.status_code in (401, 403):
            what = "refused the key" if _key() else "wants an API key, and none is set"
            raise PolicyError(
                f"{self.url}: the server {what} ({response.status_code})",
                hint="set KERNELWRIGHT_API_KEY or OPENAI_API_KEY",
            )
        if response.status_code == 404:
            raise PolicyError(
                f"{self.url} answers 404: {_detail(response)}", hint=f"check the address and the model {self.model!r}"
            )
        if response.status_code != 200:
            raise PolicyError(f"{self.url} answers {response.status_code}: {_detail(response)}", hint=CHECK)
        try:
            reply = response.json()
        except (ValueError, RecursionError) as error:  # RecursionError: deeply nested JSON
            raise PolicyError(
                f"{self.url} answered something that is not JSON: {response.text[:80]!r}", hint=CHECK
            ) from error
        if not isinstance(reply, dict) or reply.get("error"):
            raise PolicyError(f"{self.url} answered with an error: {str(reply)[:200]}", hint=CHECK)
        return reply

    def _answer(self, reply: dict[str, Any], seconds: float) -> Answer:
        try:
            choice = reply["choices"][0]
            text = choice["message"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            raise PolicyError(f"{self.url} answered without choices: {str(reply)[:200]}", hint=CHECK) from error
        usage = reply.get("usage") if isinstance(reply.get("usage"), dict) else {}
        prompt, completion = (_count(usage, name) for name in ("prompt_tokens", "completion_tokens"))
        return Answer(
            text if isinstance(text, str) else "",
            Usage(
                prompt_tokens=prompt,
                completion_tokens=completion,
                cost_usd=self._cost(prompt, completion),
                seconds=round(seconds, 3),
            ),
            str(choice.get("finish_reason") or ""),
            str(reply.get("model") or self.model),
        )

    def _cost(self, prompt: int, completion: int) -> float | None:
        s = self.settings
        if s.price_in is None or s.price_out is None:
            return None
        return (prompt * s.price_in + completion * s.price_out) / 1e6

    def _account(self, usage: Usage) -> None:
        with self._lock:
            cost = None if usage.cost_usd is None else (self.spent.cost_usd or 0.0) + usage.cost_usd
            self.spent = Usage(
                prompt_tokens=self.spent.prompt_tokens + usage.prompt_tokens,
                completion_tokens=self.spent.completion_tokens + usage.completion_tokens,
                cost_usd=cost,
                seconds=self.spent.seconds + usage.seconds,
            )

    def _cached(self, key: str) -> Answer | None:
        if self.cache is None:
            return None
        try:
            kept = json.loads((self.cache / f"{key}.json").read_text())
            usage = Usage.model_validate(kept["usage"]).model_copy(update={"cached": True})
            return Answer(kept["text"], usage, kept["finish_reason"], kept["model"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _keep(self, key: str, answer: Answer) -> None:
        if self.cache is None or not answer.text:
            return
        kept = {
            "text": answer.text,
            "usage": answer.usage.model_dump(mode="json"),
            "finish_reason": answer.finish_reason,
            "model": answer.model,
        }
        temporary = self.cache / f"{key}.{os.getpid()}.{threading.get_ident()}.new"
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(kept))
            os.replace(temporary, self.cache / f"{key}.json")
        except OSError as error:
            raise StoreError(
                f"{str(self.cache)!r} cannot be written: {error.strerror}", hint="free some space, then run again"
            ) from error


def _connect(host: str, port: int, tried: Future[None]) -> None:
    """Opens a connection and closes it; puts the outcome into `tried`."""
    try:
        socket.create_connection((host, port), timeout=20).close()
    except OSError as error:
        tried.set_exception(OSError(error.strerror or str(error)))
    else:
        tried.set_result(None)


def _is_address(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host) and (parsed.port or 1) < 2**16


def _key() -> str:
    """Returns the API key, or an empty string. Raises `ConfigError`, without the key, where no header can hold it."""
    name = "KERNELWRIGHT_API_KEY" if os.environ.get("KERNELWRIGHT_API_KEY") else "OPENAI_API_KEY"
    key = os.environ.get(name, "").strip()
    if not all(" " < c <= "~" for c in key):
        raise ConfigError(f"{name} holds characters that no key has", hint="set it to the key alone")
    return key


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else 0


def _detail(response: httpx.Response) -> str:
    text = " ".join(response.text.split())
    return text[:160] if text else "no text"


def _stated_wait(response: httpx.Response) -> float | None:
    try:
        return max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:
        return None
