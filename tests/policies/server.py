"""A real HTTP server that speaks OpenAI's chat completions, with faults on demand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse


@dataclass
class Endpoint:
    """The server's next answers, and the requests it received. Each request uses up one of its faults."""

    url: str = ""
    answer: str = "```python\nclass ModelNew: pass\n```"
    troubles: list[Any] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    async def respond(self, request: Request) -> Response:
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            trouble = self.troubles.pop(0) if self.troubles else None
            if isinstance(trouble, float):
                await asyncio.sleep(trouble)
            elif isinstance(trouble, int):
                return JSONResponse({"error": {"message": "trouble"}}, trouble, {"retry-after": "0.01"})
            elif isinstance(trouble, str):
                return PlainTextResponse(trouble)
            elif isinstance(trouble, tuple):
                return StreamingResponse(_parts(*trouble))
            elif trouble is not None:
                return JSONResponse(trouble)
            message = {"role": "assistant", "content": self.answer}
            return JSONResponse(
                {
                    "model": "served",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 20},
                }
            )
        finally:
            self.running -= 1


async def _parts(part: bytes, times: int, pause: float) -> AsyncIterator[bytes]:
    """Sends a reply in many parts, with a delay between them."""
    for _ in range(times):
        yield part
        await asyncio.sleep(pause)


@contextmanager
def serving() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    app = FastAPI()
    app.post("/v1/chat/completions")(endpoint.respond)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    endpoint.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield endpoint
    finally:
        server.should_exit = True
        thread.join(10)
