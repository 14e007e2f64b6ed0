"""The meaning of `auto`, by the environment."""

from __future__ import annotations

import pytest

from kernelwright.errors import ConfigError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.options import gpu_count


def test_the_variable_says_which_backend_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("cpu", "gpu"):
        monkeypatch.setenv("KERNELWRIGHT_BACKEND", word)
        assert EvalOptions().resolved() == word and EvalOptions(backend="cpu").resolved() == "cpu"
    for word in ("", "auto"):
        monkeypatch.setenv("KERNELWRIGHT_BACKEND", word)
        assert EvalOptions().resolved() == ("gpu" if gpu_count() else "cpu")
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "tpu")
    with pytest.raises(ConfigError, match="tpu") as caught:
        EvalOptions().resolved()
    assert "cpu or gpu" in str(caught.value.hint)
