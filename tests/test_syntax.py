"""Parsing in several threads, and within bounds of time, memory and depth, whatever the text."""

from __future__ import annotations

import ast
import gc
import threading
import time
from collections.abc import Iterator

import pytest

from kernelwright import syntax

TEXTS = [
    "x = 1\n" * 40,
    "def f(a):\n" + "".join(f"{' ' * (d + 1)}if a:\n" for d in range(20)) + " " * 22 + "return 1\n",
]


@pytest.fixture
def switching() -> Iterator[None]:
    """Installs a collector that lets other threads run whenever it runs, which is often."""
    threshold = gc.get_threshold()
    wait = lambda phase, info: time.sleep(0.0001)  # noqa: E731
    gc.callbacks.append(wait)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(wait)


@pytest.mark.usefixtures("switching")
def test_threads_do_not_disturb_each_other() -> None:
    expected = [ast.dump(ast.parse(t)) for t in TEXTS]
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(25):
            try:
                if ast.dump(syntax.parse(TEXTS[number % 2])) != expected[number % 2]:
                    wrong.append(number)
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_modules_and_expressions_and_their_errors() -> None:
    assert isinstance(syntax.expression("1 + 1"), ast.BinOp)
    assert isinstance(syntax.parse("a = 1"), ast.Module)
    with pytest.raises(SyntaxError):
        syntax.parse("a = (")
    with pytest.raises(SyntaxError):
        syntax.expression("a = 1")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("f'" + "{a}" * 300_000 + "'", id="fields of a formatted string"),
        pytest.param("a" + "\u0316\u0301" * 100_000, id="combining characters in a name"),
        pytest.param("from a" + ".b" * 400_000 + " import c", id="dots in a module's name"),
    ],
)
def test_a_text_that_costs_the_parser_too_much_is_refused_by_another_process(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syntax, "SECONDS", 1)
    began = time.process_time()
    with pytest.raises(syntax.BeyondLimits):
        syntax.parse(text)
    assert time.process_time() - began < 1, "this process must not parse it"


@pytest.mark.parametrize("text", ["-" * 5_000 + "1", "-" * 500_000 + "1", "a" + "()" * 50_000], ids=len)
def test_a_text_that_is_nested_too_deeply_is_an_error_of_its_value(text: str) -> None:
    with pytest.raises(syntax.BeyondLimits):
        syntax.parse(text)


def test_a_long_text_is_parsed() -> None:
    assert len(syntax.parse("a = 1\n" * 5_000).body) == 5_000
    assert isinstance(syntax.expression(" + ".join(["é"] * 2_000)), ast.BinOp)


def test_deeply_nested_json_and_toml_are_errors_of_their_value() -> None:
    assert syntax.json_value('{"a": [1]}') == {"a": [1]} and syntax.toml_table("a = [1]") == {"a": [1]}
    for read, text in ((syntax.json_value, "[" * 100_000), (syntax.toml_table, "a = " + "[" * 100_000)):
        with pytest.raises(ValueError, match="too deeply nested"):
            read(text)
