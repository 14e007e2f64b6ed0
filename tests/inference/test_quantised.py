"""Quantised checkpoints: the error of a row, both readers, expansion for transformers, and damaged files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from inference.checkpoints import random_checkpoint  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from kernelwright.errors import ConfigError  # noqa: E402
from kernelwright.inference import STARTER, load_engine, starter_folder  # noqa: E402
from kernelwright.inference.engine import Engine  # noqa: E402
from kernelwright.inference.quantised import (  # noqa: E402
    FORMAT,
    WEIGHTS,
    dequantise,
    expand,
    full_checkpoint,
    is_quantised,
    quantise,
    read_weights,
    write_quantised,
)
from kernelwright.inference.sampling import Sampling  # noqa: E402

NAME = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a random checkpoint whose weights are quantised."""
    made = random_checkpoint(tmp_path_factory.mktemp("checkpoint"), bias=True)
    write_quantised(load_file(made / WEIGHTS), made / WEIGHTS)
    return made


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 33)),
    exponents=st.lists(st.integers(-44, 30), min_size=9, max_size=9),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    zero=st.booleans(),
)
def test_an_error_is_at_most_half_a_step_of_its_row(
    seed: int, shape: tuple[int, int], exponents: list[int], dtype: Any, zero: bool
) -> None:
    sizes = 10.0 ** torch.tensor(exponents[: shape[0]], dtype=torch.float64)
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sizes[:, None]
    if zero:
        drawn[0] = 0
    matrix, vector = drawn.to(dtype), drawn[0].to(dtype)
    tensors = quantise({"m": matrix, "v": vector})
    assert tensors["m"].dtype == torch.int8 and tensors["m"].abs().max() <= 127
    step = tensors["m.scale"].double()[:, None]
    found = dequantise(tensors, torch.float32)
    assert found.keys() == {"m", "v"} and torch.equal(found["v"], vector)
    assert ((found["m"].double() - matrix.double()).abs() <= step * (0.5 + 1e-4)).all()
    assert dequantise(tensors, dtype)["m"].dtype == dtype


def test_what_is_quantised_again_stays_as_it_is(folder: Path) -> None:
    first = quantise({NAME: torch.randn(7, 40, generator=torch.Generator().manual_seed(1))})
    again = quantise(dequantise(first, torch.float32))
    assert torch.equal(again[NAME], first[NAME])
    with pytest.raises(ConfigError, match="not finite"):
        quantise({NAME: torch.tensor([[1.0, float("nan")]])})


def test_transformers_computes_what_our_engine_does(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelwright.generation.hub import load_model
    from kernelwright.training.fine_tune import run
    from kernelwright.training.fine_tune.settings import BaseModelSettings

    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match="mismatched_sizes"):  # and never takes the int8 values for weights
        transformers.AutoModelForCausalLM.from_pretrained(folder)
    ours = Engine(folder, device="cpu", dtype="fp32", threads=1)
    assert ours._step is not None, "weights are exactly bfloat16, so that compiled steps compute them"
    (running,) = ours.generate([[5, 6, 7]], [Sampling(temperature=0, max_tokens=12)])
    weights = read_weights(folder)
    assert all(w.dtype == torch.bfloat16 for w in weights.values())
    for model in (load_model(str(folder)), run.load_model(BaseModelSettings(path=str(folder)))):
        state = model.state_dict()
        assert all(torch.equal(state[name].cpu().float(), weight.float()) for name, weight in weights.items())
        with torch.no_grad():
            logits = model.cpu().float()(torch.tensor([[5, 6, 7, *running.ids]])).logits[0, 2:-1]
        assert logits.argmax(-1).tolist() == running.ids
    (kept,) = (tmp_path / "checkpoints").iterdir()
    assert full_checkpoint(str(folder)) == str(kept) and full_checkpoint(str(kept)) == str(kept)
    assert not is_quantised(kept) and (kept / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert full_checkpoint("owner/name") == "owner/name"


def test_another_configuration_is_another_folder_in_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    assert full_checkpoint(str(other)) == full_checkpoint(str(folder))
    config = json.loads((other / "config.json").read_text()) | {"use_cache": False}
    (other / "config.json").write_text(json.dumps(config))
    assert full_checkpoint(str(other)) != full_checkpoint(str(folder))


def _without_scales(tensors: dict[str, Any]) -> None:
    del tensors[f"{NAME}.scale"]


def _without_matrix(tensors: dict[str, Any]) -> None:
    del tensors[NAME]


def _infinite_scale(tensors: dict[str, Any]) -> None:
    tensors[f"{NAME}.scale"][0] = float("inf")


def _too_few_scales(tensors: dict[str, Any]) -> None:
    tensors[f"{NAME}.scale"] = tensors[f"{NAME}.scale"][:-1].clone()


@pytest.mark.parametrize("damage", [_without_scales, _without_matrix, _infinite_scale, _too_few_scales])
def test_a_damaged_file_is_named(folder: Path, tmp_path: Path, damage: Any) -> None:
    tensors = load_file(folder / WEIGHTS)
    damage(tensors)
    save_file(tensors, tmp_path / WEIGHTS, metadata={"format": FORMAT, "dtype": "bfloat16"})
    with pytest.raises(ConfigError, match=str(tmp_path)) as caught:
        read_weights(tmp_path)
    assert NAME in str(caught.value) and "damaged" in (caught.value.hint or "")


def test_a_file_that_is_cut_or_names_no_dtype_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    save_file(load_file(folder / WEIGHTS), tmp_path / WEIGHTS, metadata={"format": FORMAT})
    with pytest.raises(ConfigError, match="dtype"):
        full_checkpoint(str(tmp_path))
    assert not list((tmp_path / "cache" / "checkpoints").iterdir()), "nothing half made stays"
    (tmp_path / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-50])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_weights(tmp_path)
    assert not is_quantised(tmp_path)


def test_the_model_that_ships_is_quantised_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STARTER, raising=False)
    shipped = starter_folder()
    assert is_quantised(shipped) and (shipped / WEIGHTS).stat().st_size <= 28_000_000
    engine = load_engine("starter", device="cpu", dtype="fp32", threads=1)
    assert engine.decoder.embedding.shape == (4096, 512) and engine._step is not None
    expand(shipped, tmp_path)
    with safe_open(tmp_path / WEIGHTS, "pt") as file:
        assert file.metadata() == {"format": "pt"} and file.get_tensor(NAME).dtype == torch.bfloat16
