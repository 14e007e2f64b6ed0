"""The OpenAI-compatible policy against a real server: answers, faults, cache, account, secrets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from policies.server import Endpoint, serving

from kernelwright.errors import ConfigError, PolicyError, StoreError
from kernelwright.policies import load_policy, openai_http
from kernelwright.policies.openai_http import EndpointSettings, OpenAIPolicy
from kernelwright.records import Message

ASK = (Message(role="system", content="be brief"), Message(role="user", content="write a kernel"))
QUICK = EndpointSettings(timeout=2, retries=2, first_wait=0.01, price_in=1.0, price_out=10.0)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        yield running


def policy(endpoint: Endpoint, cache: Path | None = None, settings: EndpointSettings = QUICK) -> OpenAIPolicy:
    return OpenAIPolicy("some/model", endpoint.url, settings, cache)


def test_answer_with_usage_and_cost(endpoint: Endpoint) -> None:
    asked = policy(endpoint)
    answer = asked.generate(ASK, seed=3)
    assert answer.text == endpoint.answer and answer.finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 20)
    assert answer.usage.cost_usd == pytest.approx((100 * 1.0 + 20 * 10.0) / 1e6)
    assert endpoint.requests[0]["messages"] == [m.model_dump() for m in ASK]
    assert endpoint.requests[0]["model"] == "some/model" and endpoint.requests[0]["seed"] == 3
    asked.generate(ASK, seed=4)
    assert asked.spent.prompt_tokens == 200


@pytest.mark.parametrize("trouble", [429, 500, 503, 529])
def test_passing_trouble_is_waited_out(endpoint: Endpoint, trouble: int) -> None:
    endpoint.troubles = [trouble, trouble]
    assert policy(endpoint).generate(ASK, seed=0).text == endpoint.answer
    assert len(endpoint.requests) == 3


def test_slow_answer_is_asked_for_again(endpoint: Endpoint) -> None:
    endpoint.troubles = [1.5]
    quick = EndpointSettings(timeout=0.5, retries=2, first_wait=0.01)
    assert policy(endpoint, settings=quick).generate(ASK, seed=0).text == endpoint.answer


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("no JSON here", "not JSON"),
        ('{"choices": ' + "[" * 100_000, "not JSON"),
        ({"choices": []}, "without choices"),
        ({"error": {"message": "no such model"}}, "no such model"),
        (401, "wants an API key, and none is set"),
        (404, "404"),
        (400, "400"),
        ("[" * 100_000 + "]" * 100_000, "not JSON"),
        (301, "301"),
    ],
)
def test_lasting_trouble_is_said_at_once(endpoint: Endpoint, trouble: object, said: str) -> None:
    endpoint.troubles = [trouble]
    with pytest.raises(PolicyError, match=said) as told:
        policy(endpoint).generate(ASK, seed=0)
    assert len(endpoint.requests) == 1 and told.value.hint


def test_a_reply_that_does_not_come_to_an_end(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part arrives in time, so the timeout of a part does not end the reply."""
    endpoint.troubles = [(b" ", 600, 0.05)]
    started = time.monotonic()
    quick = EndpointSettings(timeout=0.5, retries=1, first_wait=0.01)
    assert policy(endpoint, settings=quick).generate(ASK, seed=0).text == endpoint.answer
    assert time.monotonic() - started < 10 and len(endpoint.requests) == 2
    monkeypatch.setattr(openai_http, "MOST_BYTES", 1 << 20)
    endpoint.troubles = [(b" " * (1 << 18), 100, 0.0)]
    with pytest.raises(PolicyError, match="more than 1 MB"):
        policy(endpoint).generate(ASK, seed=1)


def test_counts_that_are_none(endpoint: Endpoint) -> None:
    message = {"message": {"content": "text"}}
    endpoint.troubles = [{"choices": [message], "usage": {"prompt_tokens": 10**300, "completion_tokens": -1}}]
    answer = policy(endpoint).generate(ASK, seed=0)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.cost_usd) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("CONCURRENCY", "0"), ("RETRIES", "-1"), ("TEMPERATURE", "nan"), ("TIMEOUT", "inf"), ("MAX_TOKENS", "many")],
)
def test_settings_out_of_range(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """With no slot for a request, a caller would have waited for ever."""
    monkeypatch.setenv(f"KERNELWRIGHT_{name}", value)
    with pytest.raises(ConfigError, match=f"KERNELWRIGHT_{name}") as told:
        EndpointSettings.from_environment()
    assert told.value.hint and "a" in told.value.hint


@pytest.mark.parametrize("key", ["sesame\n9876", "sesamé"])
def test_a_key_that_no_header_holds_is_not_shown(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("KERNELWRIGHT_API_KEY", key)
    with pytest.raises(ConfigError, match="KERNELWRIGHT_API_KEY") as told:
        policy(endpoint).generate(ASK, seed=1)
    assert "sesam" not in f"{told.value} {told.value.hint}" and not endpoint.requests
    monkeypatch.setenv("KERNELWRIGHT_API_KEY", "sesame\n")  # as a file holds it
    policy(endpoint).generate(ASK, seed=1)
    assert endpoint.headers[0]["authorization"] == "Bearer sesame"


@pytest.mark.parametrize("stated", [True, -1, 10**400, 2**41, "5", None, 1.5])
def test_an_account_that_is_none_counts_nothing(endpoint: Endpoint, stated: object) -> None:
    choices = [{"message": {"content": "x"}, "finish_reason": "stop"}]
    endpoint.troubles = [{"choices": choices, "usage": {"prompt_tokens": stated, "completion_tokens": 7}}]
    usage = policy(endpoint).generate(ASK, seed=0).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (0, 7)


def test_trouble_that_does_not_pass_ends(endpoint: Endpoint) -> None:
    endpoint.troubles = [500] * 10
    with pytest.raises(PolicyError, match="3 tries"):
        policy(endpoint).generate(ASK, seed=0)


def test_a_host_that_was_never_reached_is_not_tried_again() -> None:
    with pytest.raises(PolicyError, match="cannot be reached"):
        OpenAIPolicy("m", "http://127.0.0.1:9", EndpointSettings(retries=9, first_wait=3600)).generate(ASK, seed=0)


def test_a_server_that_goes_away_is_tried_again() -> None:
    with serving() as endpoint:
        asked = OpenAIPolicy("m", endpoint.url, QUICK)
        asked.generate(ASK, seed=0)
    with pytest.raises(PolicyError, match="no answer after 3 tries"):
        asked.generate(ASK, seed=1)


def test_a_connection_that_takes_long_is_reported(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A listener whose queue is full accepts no further connection, and refuses none."""
    monkeypatch.setattr(openai_http, "REACH_SECONDS", 0.2)
    with socket.socket() as listener, contextlib.ExitStack() as filling:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            one = filling.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(PolicyError):
            OpenAIPolicy("m", f"http://127.0.0.1:{port}", EndpointSettings(retries=0, timeout=0.5)).generate(
                ASK, seed=0
            )
    assert f"127.0.0.1 port {port}: no connection yet" in capsys.readouterr().err


def test_same_request_is_sent_once(endpoint: Endpoint, tmp_path: Path) -> None:
    first = policy(endpoint, tmp_path).generate(ASK, seed=1)
    again = policy(endpoint, tmp_path).generate(ASK, seed=1)
    assert again.text == first.text and again.usage.cached and not first.usage.cached
    assert len(endpoint.requests) == 1
    policy(endpoint, tmp_path).generate(ASK, seed=2)
    assert len(endpoint.requests) == 2


def test_torn_cache_file_is_asked_for_again(endpoint: Endpoint, tmp_path: Path) -> None:
    policy(endpoint, tmp_path).generate(ASK, seed=1)
    for file in tmp_path.iterdir():
        file.write_text(file.read_text()[:20])
    assert policy(endpoint, tmp_path).generate(ASK, seed=1).text == endpoint.answer
    for file in tmp_path.iterdir():
        file.write_text("[]")
    assert policy(endpoint, tmp_path).generate(ASK, seed=1).text == endpoint.answer
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        policy(endpoint, tmp_path / "file").generate(ASK, seed=1)


def test_key_is_sent_and_kept_nowhere(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_API_KEY", "sesame-9876")
    policy(endpoint, tmp_path).generate(ASK, seed=1)
    assert endpoint.headers[0]["authorization"] == "Bearer sesame-9876"
    assert all("sesame" not in file.read_text() + file.name for file in tmp_path.iterdir())


def test_concurrency_is_bounded(endpoint: Endpoint) -> None:
    endpoint.troubles = [0.1] * 12
    shared = policy(endpoint, settings=EndpointSettings(timeout=20, concurrency=3))
    threads = [threading.Thread(target=shared.generate, args=(ASK,), kwargs={"seed": i}) for i in range(12)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert endpoint.most_running <= 3 and len(endpoint.requests) == 12
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("listens", [True, False], ids=["slow", "tried again"])
def test_who_waits_is_let_go_when_it_is_stopped(endpoint: Endpoint, listens: bool) -> None:
    """Three kinds of waiters are released: those for an answer, for a retry, and for a slot behind them."""
    shared = policy(endpoint, settings=EndpointSettings(timeout=60, first_wait=40, concurrency=2))
    shared.generate(ASK, seed=99)
    endpoint.troubles = [6.0] * 5
    if not listens:
        shared.url = "http://127.0.0.1:9/v1/chat/completions"
    ended: list[str] = []

    def ask(seed: int) -> None:
        with pytest.raises(PolicyError) as error:
            shared.generate(ASK, seed=seed)
        ended.append(str(error.value))

    threads = [threading.Thread(target=ask, args=(seed,), daemon=True) for seed in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    stopped = time.monotonic()
    shared.stop()
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - stopped < 5 and len(ended) == 5 and all("stopped" in text for text in ended)


@pytest.mark.parametrize(
    "spec",
    [
        "openai:",
        "openai:model@",
        "openai:@http://x",
        "openai:model@nowhere",
        "opnai:model",
        "openai:m@http://",
        "openai:m@http://h:99999/v1",
    ],
)
def test_spec_that_names_nothing(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "not-a-url")
    with pytest.raises(ConfigError):
        load_policy(spec)


def test_a_missing_key_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KERNELWRIGHT_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="no API key"):
        OpenAIPolicy.from_spec("some-model", None)
    OpenAIPolicy.from_spec("some-model@http://127.0.0.1:8000/v1", None)  # a server of one's own may need none
