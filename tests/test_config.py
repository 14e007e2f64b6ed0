"""Settings: the place of the cache, and TOML files with overrides into models."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernelwright.config import cache_dir, dump_config, load_config, number_of_environment
from kernelwright.errors import ConfigError


class Optimizer(BaseModel):
    lr: float = Field(default=1e-3, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    name: Literal["adamw", "muon"] = "adamw"


class Named(BaseModel):
    name: str
    parameters: dict[str, Any] = {}


class Pair(BaseModel):
    """Settings that must go together."""

    suite: str | None = None
    count: int = 0
    secret: str = "never printed"

    @model_validator(mode="after")
    def _one(self) -> Pair:
        if (self.suite is None) == (self.count == 0):
            raise ValueError("give either suite or count")
        return self


class Job(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int | None = None
    steps: int = 10
    label: str | None = None
    optimizer: Optimizer = Optimizer()
    extra: Optimizer | None = None
    tags: list[str] = []
    weights: dict[str, float] = {}
    reward: Named | None = None
    pair: Pair | None = None


def _write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_file_then_overrides(tmp_path: Path) -> None:
    path = _write(tmp_path, 'model = "small"\nsteps = 5\n[optimizer]\nlr = 1e-4\n')
    job = load_config(path, ["optimizer.lr=3e-4", "optimizer.betas=[0.8, 0.9]", "tags=['a', 'b']", "seed=7"], Job)
    assert (job.steps, job.seed, job.tags) == (5, 7, ["a", "b"])
    assert job.optimizer == Optimizer(lr=3e-4, betas=(0.8, 0.9))
    assert load_config(path, [], Job).optimizer.lr == 1e-4


def test_overrides_alone_and_text_values() -> None:
    job = load_config(None, ["model=123", "label = true", "extra.lr=1.0", "extra.name=muon"], Job)
    assert (job.model, job.label) == ("123", "true")
    assert job.extra == Optimizer(lr=1.0, name="muon")
    assert load_config(None, ["model='a b'", "seed=none"], Job).model == "a b"
    assert load_config(None, ["model=a=b"], Job).model == "a=b"


def test_null_empties_text_that_may_be_empty(tmp_path: Path) -> None:
    path = _write(tmp_path, 'model = "small"\nlabel = "x"\n')
    assert load_config(path, ["label=null"], Job).label is None
    assert load_config(path, ["label=none"], Job).label is None
    assert load_config(path, ["label='null'", "model=null"], Job).model_dump(include={"label", "model"}) == {
        "label": "null",
        "model": "null",
    }


def test_keys_of_a_dict_are_set_by_dotted_names(tmp_path: Path) -> None:
    path = _write(tmp_path, 'model = "x"\n[reward]\nname = "a"\nparameters = {cap = 1.0, kind = "k"}\n')
    changes = [
        "reward.parameters.cap=2.5",
        "reward.parameters.by.deep=[1, 2]",
        "weights.a=3",
        "reward.parameters.on=true",
    ]
    job = load_config(path, [*changes, "reward.parameters.how=skip"], Job)
    assert job.reward is not None and job.weights == {"a": 3.0}
    assert job.reward.parameters == {"cap": 2.5, "kind": "k", "by": {"deep": [1, 2]}, "on": True, "how": "skip"}
    whole = load_config(path, ["reward.parameters={cap = 4}"], Job)
    assert whole.reward is not None and whole.reward.parameters == {"cap": 4}


@pytest.mark.parametrize(
    ("overrides", "parameters"),
    [
        (["reward.name=b"], {}),
        (["reward.name='a'"], {"cap": 1.0}),
        (["reward.parameters.gap=2", "reward.name=b"], {"gap": 2}),
        (["reward.name=b", "reward.parameters={gap = 2}"], {"gap": 2}),
    ],
)
def test_another_name_does_not_inherit_parameters(
    tmp_path: Path, overrides: list[str], parameters: dict[str, Any]
) -> None:
    path = _write(tmp_path, 'model = "x"\n[reward]\nname = "a"\nparameters = {cap = 1.0}\n')
    job = load_config(path, overrides, Job)
    assert job.reward is not None and job.reward.parameters == parameters


def test_settings_that_do_not_go_together_are_not_all_printed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["suite=a", "count=2", "secret=never printed"], Pair)
    assert str(caught.value) == "the settings: give either suite or count"
    assert "NAME=VALUE" in str(caught.value.hint)
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["model=x", "pair.secret=never printed"], Job)
    assert str(caught.value) == "the settings: pair: give either suite or count"
    assert "pair.NAME=VALUE" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        (["model=x", "optimiser.lr=1"], "unknown setting 'optimiser'", "did you mean 'optimizer'?"),
        (["model=x", "optimizer.lrr=1"], "unknown setting 'optimizer.lrr'", "did you mean 'optimizer.lr'?"),
        (["model=x", "zzz=1"], "unknown setting 'zzz'", "settings here are: model, seed"),
        (["model=x", "steps"], "'steps' is no setting", "name=value"),
        (["model=x", "=3"], "'=3' is no setting", "name=value"),
        (["model=x", "steps.a=1"], "'steps' is a single setting", "steps=VALUE"),
        (["steps=3"], "the setting 'model' is required", "model=VALUE"),
        (["model=x", "steps=many"], "^override: steps = 'many'", "another steps=VALUE"),
        (["model=x", "optimizer.lr=-1"], r"^override: optimizer\.lr = -1", "another optimizer.lr=VALUE"),
        (["model=x", "optimizer.name=sgd"], r"^override: optimizer\.name = 'sgd'", "another optimizer.name=VALUE"),
    ],
)
def test_wrong_overrides_are_named(overrides: list[str], message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(None, overrides, Job)
    assert "\n" not in str(caught.value)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"model = ", "is not TOML"),
        (b'model = "\xff"', r"is not UTF-8 text \(byte 9\)"),
        (b'model = "x"\nstep = 3\n', "unknown setting 'step'"),
        (b'model = "x"\n[optimizer]\nbeta = [1]\n', "unknown setting 'optimizer.beta'"),
        (b'model = "x"\noptimizer = 3\n', "optimizer = 3"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path, [], Job)
    assert str(path) in str(caught.value) and caught.value.hint


def test_what_the_file_says_is_the_file_s_fault(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('model = "x"\n[optimizer]\nlr = -1\n')
    with pytest.raises(ConfigError, match=r"job\.toml': optimizer\.lr = -1") as caught:
        load_config(path, ["steps=3"], Job)
    assert caught.value.hint == "change it in the file, or give optimizer.lr=VALUE"
    with pytest.raises(ConfigError, match="^override: "):
        load_config(path, ["optimizer.lr=-2"], Job)


def test_a_key_that_stands_twice_in_yaml_is_refused(tmp_path: Path) -> None:
    """The YAML reader takes the last one, which would silently lose half of a table."""
    path = tmp_path / "job.yaml"
    for text, key, line in (
        ("model: a\noptimizer: {name: adamw}\nmodel: b\n", "model", 3),
        ("model: a\noptimizer:\n  lr: 1.0\n  name: x\n  lr: 2.0\n", "lr", 5),
        ("model: a\ntags: [{x: 1, x: 2}]\n", "x", 2),
        ("model: a\n'model': b\n", "model", 2),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=f"the key '{key}' stands there twice, in line {line} again") as caught:
            load_config(path, [], Job)
        assert str(path) in str(caught.value)
    path.write_text("model: a\nweights: &all {x: 1.0, y: 2.0}\nreward: {name: r, parameters: {<<: *all, y: 3.0}}\n")
    found = load_config(path, [], Job)
    assert found.reward is not None and dict(found.reward.parameters) == {"x": 1.0, "y": 3.0}, "a merge may be changed"


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(path, [], Job)


floats = st.floats(allow_nan=False)
optimizers = st.builds(Optimizer, lr=floats.filter(lambda x: x > 0), betas=st.tuples(floats, floats))
jobs = st.builds(
    Job,
    model=st.text(),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    label=st.none() | st.text(),
    optimizer=optimizers,
    extra=st.none() | optimizers,
    tags=st.lists(st.text(), max_size=3),
    weights=st.dictionaries(st.text(), floats, max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_dumped_settings_load_again(tmp_path_factory: pytest.TempPathFactory, job: Job) -> None:
    path = tmp_path_factory.getbasetemp() / "dumped.toml"
    path.write_bytes(dump_config(job).encode())
    assert load_config(path, [], Job) == job


def test_infinity_is_toml() -> None:
    assert "lr = inf" in dump_config(Optimizer(lr=math.inf))


def test_cache_folder_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("KERNELWRIGHT_CACHE", raising=False)
    assert cache_dir() == tmp_path / "home" / ".cache" / "kernelwright"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "kernelwright"
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own" and cache_dir().is_dir()


def test_cache_folder_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for value in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("KERNELWRIGHT_CACHE", str(value))
        with pytest.raises(ConfigError, match="cannot be used") as caught:
            cache_dir()
        assert "KERNELWRIGHT_CACHE" in str(caught.value.hint)


def test_cache_folder_where_home_is_not_writable(tmp_path: Path) -> None:
    """`/proc/self` refuses new folders even to root."""
    code = "from kernelwright.config import cache_dir; cache_dir()"
    kept = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "KERNELWRIGHT_CACHE")}
    environment = {**kept, "HOME": "/proc/self"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "ConfigError: the cache folder '/proc/self/.cache/kernelwright' cannot be used" in done.stderr


@pytest.mark.parametrize("text", ["many", "nan", "inf", "-1", "1e300", "1.5"])
def test_a_variable_that_holds_no_such_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KERNELWRIGHT_TOP_K", text)
    with pytest.raises(ConfigError, match="KERNELWRIGHT_TOP_K=") as told:
        number_of_environment("KERNELWRIGHT_TOP_K", 0, 100, whole=True)
    assert told.value.hint is not None and "from 0 to 100" in told.value.hint


def test_a_variable_that_holds_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_TOP_K", "7")
    assert number_of_environment("KERNELWRIGHT_TOP_K", 0, 100, whole=True) == 7
    monkeypatch.setenv("KERNELWRIGHT_TOP_K", "")
    assert number_of_environment("KERNELWRIGHT_TOP_K", 0, 100, whole=True) is None
