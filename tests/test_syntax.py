"""Parsing in several threads, between which the garbage collector switches within a tree."""

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
