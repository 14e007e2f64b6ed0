"""The HTTP application: OpenAI's models, chat completions and completions, with streaming, log-probs and `n`."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from kernelwright.errors import KernelwrightError, UsageError
from kernelwright.inference.chat import begun, source_of
from kernelwright.inference.engine import Running
from kernelwright.inference.repeating import Asking, asking
from kernelwright.records import Message
from kernelwright.serve.protocol import ApiError, ChatRequest, CompletionRequest
from kernelwright.serve.text import TextStream
from kernelwright.serve.worker import GenerationJob, GenerationWorker

WATCH_SECONDS = 0.5
"""Interval at which a waiting client's connection is checked."""


def served_name(model: str) -> str:
    """Returns the model's name at the endpoint: `starter`, or the name of its folder."""
    kind, _, rest = model.partition(":")
    named = rest if kind == "starter" else model
    return Path(named).resolve().name if named else "starter"


def make_app(worker: GenerationWorker, name: str) -> FastAPI:
    """Makes the application around a worker."""
    app = FastAPI(title="kernelwright", docs_url=None, redoc_url=None, openapi_url=None)
    server = _Server(worker, name)
    app.get("/health")(server.health)
    app.get("/v1/models")(server.models)
    app.get("/v1/models/{model}")(server.model)
    app.post("/v1/chat/completions")(server.chat)
    app.post("/v1/completions")(server.completions)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(KernelwrightError, _failed)
    return app


class _Server:
    def __init__(self, worker: GenerationWorker, name: str) -> None:
        self.worker, self.name = worker, name
        self.engine = worker.engine
        self.tokenizer = worker.engine.tokenizer
        self.created = int(time.time())

    async def health(self) -> dict[str, str]:
        return {"status": "ok"}

    async def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [self._card()]}

    async def model(self, model: str) -> dict[str, Any]:
        self._check_name(model)
        return self._card()

    def _card(self) -> dict[str, Any]:
        context = self.engine.config.context
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "kernelwright",
            "max_model_len": context,
        }

    def _check_name(self, model: str) -> None:
        if model != self.name:
            message = f"there is no model {model!r} here; this server has {self.name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    async def chat(self, asked: ChatRequest, request: Request) -> Response:
        messages = [
            Message(role="system" if m.role == "developer" else m.role, content=m.content) for m in asked.messages
        ]
        task = Asking("")
        if self.engine.config.bare_task:
            source = source_of(messages)
            # log-probs belong to the drawn tokens, so the text must stay as it was drawn
            task = Asking(source) if asked.logprobs else asking(source)
            messages = [Message(role="user", content=task.text)]
        jobs = self._submit(asked, [self.tokenizer.prompt(messages)], self.engine.schedules)
        answer, choices = _Answer(self, "chatcmpl", jobs), _ChatChoices(self, asked.logprobs, task)
        if asked.stream:
            return answer.streamed(asked, choices)
        await answer.wait(request)
        return answer.whole("chat.completion", choices.whole)

    async def completions(self, asked: CompletionRequest, request: Request) -> Response:
        prompts = [self.tokenizer.encode_raw(p) if isinstance(p, str) else self._ids(p) for p in asked.prompts()]
        jobs = self._submit(asked, prompts)
        answer = _Answer(self, "cmpl", jobs)
        if asked.stream:
            return answer.streamed(asked, _TextChoices(self, asked.logprobs is not None))
        await answer.wait(request)
        return answer.whole("text_completion", _TextChoices(self, asked.logprobs is not None).whole)

    def _ids(self, prompt: list[int]) -> list[int]:
        if any(not 0 <= i < self.engine.config.vocabulary for i in prompt):
            raise ApiError(400, "prompt holds an id that is no token", param="prompt")
        return prompt

    def _submit(
        self, asked: ChatRequest | CompletionRequest, prompts: list[list[int]], schedules: Sequence[str] = ()
    ) -> list[GenerationJob]:
        """Starts jobs for all choices; a model with several schedules begins each choice with the next of them."""
        self._check_name(asked.model)
        refused = asked.unsupported()
        if refused is not None:
            raise ApiError(400, f"{refused} is not supported by this server", param=refused, code="unsupported_value")
        jobs: list[GenerationJob] = []
        try:
            for prompt in prompts:
                samplings = asked.samplings()
                if not schedules:
                    jobs += self.worker.submit(prompt, samplings)  # at once: equal prompts are computed once
                for number, sampling in enumerate(samplings if schedules else ()):
                    begin = self.tokenizer.encode(begun(schedules, number))
                    jobs += self.worker.submit([*prompt, *begin], [sampling])
        except UsageError as error:
            for job in jobs:
                job.running.cancelled = True
            code = "context_length_exceeded" if "context" in str(error) else None
            raise ApiError(400, str(error), param="messages", code=code) from error
        return jobs

    def pieces(self, running: Running) -> list[tuple[str, bytes, float]]:
        """Returns text, bytes and log-probability of each token of an answer, without the end token."""
        tokens = [(i, log) for i, log in zip(running.ids, running.log_probs, strict=True) if i not in self.engine.ends]
        raw = [(self.tokenizer.piece(i), log) for i, log in tokens]
        return [(data.decode("utf-8", "replace"), data, log) for data, log in raw]


class _ChatChoices:
    """Choices in the form of chat completions."""

    object = "chat.completion.chunk"

    def __init__(self, server: _Server, with_logs: bool, task: Asking) -> None:
        self.server, self.with_logs, self.task = server, with_logs, task

    def whole(self, index: int, running: Running) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.task.answered(running.text)}
        logs = self._logs(running, 0, None)
        return {"index": index, "message": message, "logprobs": logs, "finish_reason": running.finish_reason}

    def part(
        self, index: int, running: Running, text: str, first: int, end: int | None, done: bool, begins: bool
    ) -> dict[str, Any]:
        delta = {"role": "assistant", "content": text} if begins else {"content": text} if text else {}
        reason = running.finish_reason if done else None
        return {
            "index": index,
            "delta": delta,
            "logprobs": self._logs(running, first, end),
            "finish_reason": reason,
        }

    def _logs(self, running: Running, first: int, end: int | None) -> dict[str, Any] | None:
        if not self.with_logs:
            return None
        pieces = self.server.pieces(running)[first:end]
        return {
            "content": [
                {"token": text, "logprob": log, "bytes": list(data), "top_logprobs": []} for text, data, log in pieces
            ]
        }


class _TextChoices:
    """Choices in the form of completions."""

    object = "text_completion"
    task = Asking("")

    def __init__(self, server: _Server, with_logs: bool) -> None:
        self.server, self.with_logs = server, with_logs

    def whole(self, index: int, running: Running) -> dict[str, Any]:
        return self.part(index, running, running.text, 0, None, True, False)

    def part(
        self, index: int, running: Running, text: str, first: int, end: int | None, done: bool, begins: bool
    ) -> dict[str, Any]:
        reason = running.finish_reason if done else None
        return {"index": index, "text": text, "logprobs": self._logs(running, first, end), "finish_reason": reason}

    def _logs(self, running: Running, first: int, end: int | None) -> dict[str, Any] | None:
        if not self.with_logs:
            return None
        pieces = self.server.pieces(running)
        offsets = [0]
        for text, _, _ in pieces:
            offsets.append(offsets[-1] + len(text))
        return {
            "tokens": [text for text, _, _ in pieces][first:end],
            "token_logprobs": [log for _, _, log in pieces][first:end],
            "top_logprobs": None,
            "text_offset": offsets[:-1][first:end],
        }


class _Answer:
    """The reply to one request, made from one job per choice."""

    def __init__(self, server: _Server, prefix: str, jobs: Sequence[GenerationJob]) -> None:
        self.server, self.jobs = server, jobs
        self.id = f"{prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.server.name}

    def usage(self) -> dict[str, int]:
        """Counts the tokens of the prompts, equal prompts once, and of all answers."""
        prompts = {r.prompt: len(r.prompt) for r in (job.running for job in self.jobs)}
        prompt, completion = sum(prompts.values()), sum(len(job.running.ids) for job in self.jobs)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def cancel(self) -> None:
        """Cancels the jobs that are not done."""
        for job in self.jobs:
            job.running.cancelled = True

    async def wait(self, request: Request) -> None:
        """Waits until all jobs are done. Raises `ApiError` 499 when the client disconnects."""
        waiting = asyncio.gather(*(self._finish(job) for job in self.jobs))
        try:
            while True:
                done, _ = await asyncio.wait([waiting], timeout=WATCH_SECONDS)
                if done:
                    await waiting
                    return
                if await request.is_disconnected():
                    waiting.cancel()
                    await asyncio.wait([waiting])
                    if not waiting.cancelled():
                        waiting.exception()  # retrieved, or asyncio logs it as never retrieved
                    raise ApiError(499, "the client went away")
        finally:
            self.cancel()

    async def _finish(self, job: GenerationJob) -> None:
        async for _ in job.progress():
            continue

    def whole(self, kind: str, choice: Callable[[int, Running], dict[str, Any]]) -> Response:
        choices = [choice(index, job.running) for index, job in enumerate(self.jobs)]
        return JSONResponse({**self._head(kind), "choices": choices, "usage": self.usage()})

    def streamed(self, asked: ChatRequest | CompletionRequest, choices: _ChatChoices | _TextChoices) -> Response:
        """Streams server-sent events: a chunk for each choice's new text, then `[DONE]`."""
        usage = asked.stream_options is not None and asked.stream_options.include_usage
        events = self._events(choices, asked.stop or (), usage)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    async def _events(
        self, choices: _ChatChoices | _TextChoices, stops: Sequence[str], usage: bool
    ) -> AsyncIterator[str]:
        news: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()
        tasks = [
            asyncio.create_task(self._follow(index, job, choices, stops, news)) for index, job in enumerate(self.jobs)
        ]
        left = len(tasks)
        try:
            while left:
                item = await news.get()
                if item is None:
                    left -= 1
                elif isinstance(item, BaseException):
                    yield _event(ApiError(500, str(item)).body)
                    return
                else:
                    yield _event({**self._head(choices.object), "choices": [item]})
            if usage:
                yield _event({**self._head(choices.object), "choices": [], "usage": self.usage()})
            yield "data: [DONE]\n\n"
        finally:
            self.cancel()
            for task in tasks:
                task.cancel()

    async def _follow(
        self,
        index: int,
        job: GenerationJob,
        choices: _ChatChoices | _TextChoices,
        stops: Sequence[str],
        news: asyncio.Queue[dict[str, Any] | BaseException | None],
    ) -> None:
        """Puts one choice's new chunks into the queue, and None at its end."""
        running = job.running
        stream = TextStream(self.server.tokenizer, stops, choices.task)
        told, begins = 0, True
        try:
            async for count in job.progress():
                text = stream.piece(running.ids[:count], None)
                if text or begins:
                    news.put_nowait(choices.part(index, running, text, told, count, False, begins))
                    told, begins = count, False
            text = stream.piece(running.ids, running.text)
            news.put_nowait(choices.part(index, running, text, told, None, True, begins))
            news.put_nowait(None)
        except Exception as error:  # sent to the client as an event: the status line is out already
            news.put_nowait(error)


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status)


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if part != "body"]
    name = ".".join(path) or None
    message = f"{name}: {first['msg']}" if name else "the body must be a JSON object, sent as application/json"
    return JSONResponse(ApiError(400, message, param=name).body, 400)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(ApiError(error.status_code, str(error.detail)).body, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse(ApiError(500, str(error)).body, 500)
