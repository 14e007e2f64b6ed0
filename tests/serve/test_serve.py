"""The endpoint over real HTTP, on a small random checkpoint: OpenAI's shapes, batching, streaming, errors, Ctrl-C."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch")

import uvicorn
from inference.checkpoints import random_checkpoint
from training.sample_pairs import REFERENCE

from kernelwright.inference.engine import Engine
from kernelwright.inference.sampling import Sampling
from kernelwright.policies.openai_http import EndpointSettings, OpenAIPolicy
from kernelwright.prompts import initial_messages
from kernelwright.records import Message, Task
from kernelwright.serve.app import make_app
from kernelwright.serve.worker import GenerationWorker

SOURCE = REFERENCE.format(doc="Scaled.", arg="x", expression="torch.relu(x)", scale=2.0, rows=4, columns=5)
CHAT = {"model": "small", "messages": [{"role": "user", "content": "abs"}], "max_tokens": 20, "seed": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_checkpoint(tmp_path_factory.mktemp("served") / "small", context=1024)


@pytest.fixture(scope="module")
def worker(folder: Path) -> Iterator[GenerationWorker]:
    made = GenerationWorker(Engine(folder, device="cpu", rows=4, dtype="fp32", threads=1))
    yield made
    made.close()


@pytest.fixture(scope="module")
def http(worker: GenerationWorker) -> Iterator[httpx.Client]:
    server = uvicorn.Server(uvicorn.Config(make_app(worker, "small"), host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client
    server.should_exit = True
    thread.join(10)


def events(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the chunks of a stream, which must end as OpenAI's do."""
    with http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_models(http: httpx.Client) -> None:
    (card,) = http.get("/v1/models").json()["data"]
    assert card["id"] == "small" and card["object"] == "model" and card["max_model_len"] == 1024
    assert http.get("/v1/models/small").json() == card
    assert http.get("/v1/models/other").status_code == 404
    assert http.get("/health").json() == {"status": "ok"}


def test_chat_is_what_the_engine_gives(http: httpx.Client, worker: GenerationWorker) -> None:
    reply = http.post("/v1/chat/completions", json={**CHAT, "temperature": 0}).json()
    prompt = worker.engine.tokenizer.prompt([Message(role="user", content="abs")])
    (right,) = worker_engine_answers(worker, prompt, [Sampling(0.0, max_tokens=20)])
    assert reply["object"] == "chat.completion" and reply["model"] == "small"
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": right["text"]}
    assert choice["finish_reason"] == right["reason"] and choice["logprobs"] is None
    count = len(right["ids"])
    assert reply["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": count,
        "total_tokens": len(prompt) + count,
    }


def worker_engine_answers(
    worker: GenerationWorker, prompt: list[int], samplings: list[Sampling]
) -> list[dict[str, Any]]:
    """Returns the answers of a second engine over the same weights: the worker's engine belongs to its thread."""
    engine = Engine.__new__(Engine)
    engine.__dict__.update(worker.engine.__dict__)
    engine._cache = worker.engine.decoder.cache(4, 1024)
    engine._state = worker.engine._fresh_rows()
    engine._active, engine._lengths = [], []
    engine._waiting = type(worker.engine._waiting)()
    done = engine.generate([prompt] * len(samplings), samplings)
    return [{"text": r.text, "ids": r.ids, "logs": r.log_probs, "reason": r.finish_reason} for r in done]


def test_several_answers_with_log_probs(http: httpx.Client, worker: GenerationWorker) -> None:
    body = {**CHAT, "n": 3, "temperature": 1.0, "top_p": 0.95, "logprobs": True}
    reply = http.post("/v1/chat/completions", json=body).json()
    prompt = worker.engine.tokenizer.prompt([Message(role="user", content="abs")])
    right = worker_engine_answers(worker, prompt, [Sampling(1.0, 0.95, max_tokens=20, seed=7 + i) for i in range(3)])
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2]
    assert [c["message"]["content"] for c in reply["choices"]] == [r["text"] for r in right]
    assert len({r["text"] for r in right}) == 3
    for choice, one in zip(reply["choices"], right, strict=True):
        content = choice["logprobs"]["content"]
        logs = [log for i, log in zip(one["ids"], one["logs"], strict=True) if i not in worker.engine.ends]
        assert [c["logprob"] for c in content] == pytest.approx(logs, abs=1e-4)
        assert b"".join(bytes(c["bytes"]) for c in content).decode("utf-8", "replace") == one["text"]
    assert http.post("/v1/chat/completions", json=body).json()["choices"] == reply["choices"]


def pieces(http: httpx.Client, body: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """Returns the streamed parts of one choice."""
    chunks = events(http, "/v1/chat/completions", body)
    return [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == index]


@pytest.mark.parametrize("stop", [None, "e"])
def test_streamed_pieces_make_the_whole(http: httpx.Client, stop: str | None) -> None:
    body = {**CHAT, "n": 2, "max_tokens": 40, "stop": stop, "logprobs": stop is None}
    whole = http.post("/v1/chat/completions", json=body).json()
    chunks = events(http, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"} and len({c["id"] for c in chunks}) == 1
    for index, choice in enumerate(whole["choices"]):
        parts = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == index]
        assert parts[0]["delta"]["role"] == "assistant"
        assert "".join(p["delta"].get("content", "") for p in parts) == choice["message"]["content"]
        assert [p["finish_reason"] for p in parts] == [None] * (len(parts) - 1) + [choice["finish_reason"]]
        if stop is None:
            streamed = [t["logprob"] for p in parts for t in p["logprobs"]["content"]]
            assert streamed == pytest.approx([t["logprob"] for t in choice["logprobs"]["content"]], abs=1e-4)
            # The load of the machine decides how many tokens a chunk has, so a busy one may need several answers.
            again = (pieces(http, body, index) for _ in range(9))
            assert any(len(one) > 3 for one in itertools.chain([parts], again))
        elif stop in choice["message"]["content"]:
            raise AssertionError("the stop text was shown")


def test_completions(http: httpx.Client, worker: GenerationWorker) -> None:
    raw = "<|im_start|>user\nabs<|im_end|>\n<|im_start|>assistant\n"
    body = {"model": "small", "prompt": raw, "max_tokens": 20, "temperature": 0, "logprobs": 1}
    reply = http.post("/v1/completions", json=body).json()
    chat = http.post("/v1/chat/completions", json={**CHAT, "temperature": 0}).json()
    (choice,) = reply["choices"]
    assert reply["object"] == "text_completion"
    assert choice["text"] == chat["choices"][0]["message"]["content"]
    logs = choice["logprobs"]
    letters = [c for c in choice["text"] if c.isascii()]  # characters of several tokens have no text of their own
    assert [c for c in "".join(logs["tokens"]) if c.isascii()] == letters
    assert len(logs["token_logprobs"]) == len(logs["tokens"])
    assert logs["text_offset"][:2] == [0, len(logs["tokens"][0])]
    ids = worker.engine.tokenizer.encode_raw(raw)
    both = http.post("/v1/completions", json={**body, "prompt": [ids, ids[:4]]}).json()
    assert both["choices"][0]["text"] == choice["text"] and len(both["choices"]) == 2
    chunks = events(http, "/v1/completions", body)
    assert "".join(c["choices"][0]["text"] for c in chunks) == choice["text"]


def test_a_list_of_no_prompts_is_refused(http: httpx.Client) -> None:
    reply = http.post("/v1/completions", json={"model": "small", "prompt": [], "max_tokens": 4})
    assert reply.status_code == 400 and "prompt" in reply.text


def test_requests_at_once_share_the_batch(http: httpx.Client, worker: GenerationWorker) -> None:
    most = 0
    step = worker.engine.step

    def watched() -> None:
        nonlocal most
        step()
        most = max(most, len(worker.engine._active))

    worker.engine.step = watched  # type: ignore[method-assign]
    try:
        bodies = [{**CHAT, "seed": i, "max_tokens": 60} for i in range(6)]
        with ThreadPoolExecutor(6) as pool:
            replies = list(pool.map(lambda b: http.post("/v1/chat/completions", json=b).json(), bodies))
        assert most >= 3
    finally:
        worker.engine.step = step  # type: ignore[method-assign]
    for body, reply in zip(bodies, replies, strict=True):
        assert http.post("/v1/chat/completions", json=body).json()["choices"] == reply["choices"]


def test_the_openai_policy_talks_to_it(http: httpx.Client) -> None:
    task = Task(task_id="scaled", source=SOURCE)
    policy = OpenAIPolicy("small", str(http.base_url), EndpointSettings(temperature=0.0, max_tokens=30, retries=0))
    answer = policy.generate(initial_messages(task), seed=3)
    bare = http.post(
        "/v1/chat/completions",
        json={
            "model": "small",
            "messages": [{"role": "user", "content": SOURCE}],
            "temperature": 0,
            "max_tokens": 30,
        },
    ).json()
    assert answer.text == bare["choices"][0]["message"]["content"]  # asked with the task alone, not with the request
    assert answer.usage.prompt_tokens == bare["usage"]["prompt_tokens"] > 20
    assert answer.usage.completion_tokens == bare["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"temperature": -1}, 400, "temperature"),
        ({"messages": []}, 400, "messages"),
        ({"messages": None}, 400, "messages"),
        ({"n": 0}, 400, "n"),
        ({"stop": [""]}, 400, "stop"),
        ({"model": "gpt-4"}, 404, "model"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"top_logprobs": 3}, 400, "top_logprobs"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, 400, "messages"),
    ],
)
def test_errors_have_openais_shape(http: httpx.Client, change: dict[str, Any], status: int, param: str) -> None:
    reply = http.post("/v1/chat/completions", json={**CHAT, **change})
    assert reply.status_code == status
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error" and error["message"] and error["param"] == param


def test_what_is_no_request(http: httpx.Client) -> None:
    assert "error" in http.post("/v1/chat/completions", content=b"{").json()
    assert http.post("/v1/embeddings", json={}).json()["error"]["message"] == "Not Found"


def test_client_that_leaves_frees_its_row(http: httpx.Client, worker: GenerationWorker) -> None:
    body = {**CHAT, "max_tokens": 900, "temperature": 3.0, "n": 4, "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        next(response.iter_lines())
    deadline = time.monotonic() + 20
    while worker.engine.busy and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not worker.engine.busy
    assert http.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_the_verb_serves_and_ends_on_ctrl_c(folder: Path) -> None:
    words = ["serve", "--model", str(folder), "--port", "0", "--device", "cpu", "--rows", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelwright.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("serving small at http://127.0.0.1:"), said
        url = said.split()[-1]
        assert httpx.post(f"{url}/chat/completions", json=CHAT, timeout=60).status_code == 200
        long = {**CHAT, "max_tokens": 900, "temperature": 3.0, "n": 8}
        with pytest.raises(httpx.TimeoutException):  # a client that does not wait is nothing to tell of
            httpx.post(f"{url}/chat/completions", json=long, timeout=0.1)
        assert httpx.post(f"{url}/chat/completions", json=CHAT, timeout=60).status_code == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0 and errors == "stopped\n"
    finally:
        process.kill()
