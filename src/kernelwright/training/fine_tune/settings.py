"""What a fine-tuning run can be told: the YAML (or TOML) files that `kernelwright train sft` and `train dpo` take."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from kernelwright.errors import ConfigError
from kernelwright.evaluation.options import MAX_SECONDS, MAX_TRIALS
from kernelwright.tasks.formats.hub import offline_where_silent
from kernelwright.training.losses.cuset import SampleWeight, Scope
from kernelwright.training.losses.reduction import Reduction
from kernelwright.training.pretrain.settings import MOST, MOST_JOBS, SEEDS, Numbers

MOST_SAMPLES = 65_536
"""Answers to a task."""


class Table(Numbers):
    """Base of all settings: frozen, no unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class LoraSettings(Table):
    """A low-rank adapter instead of full tuning."""

    r: int = Field(default=8, ge=1, le=65_536)
    alpha: int = Field(default=16, ge=1, le=MOST)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: str = "all-linear"
    """Names of modules, comma-separated, or all-linear (never the head)."""


class BaseModelSettings(Table):
    """The model that training begins with."""

    path: str
    """A folder or a Hub id, in Hugging Face's format."""
    tune: Literal["full", "lora"] = "full"
    lora: LoraSettings = LoraSettings()
    """Used with tune = lora."""
    merge: bool = True
    """Of a LoRA run: save the merged model beside the adapter, to use it as any other."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the weights. auto: bfloat16 for LoRA on a GPU, float32 else (a bfloat16 forward pass either way on a GPU)."""
    attention: str = "auto"
    """transformers' name of the implementation: sdpa, eager, flash_attention_2, …; auto: its own choice, sdpa where the
    model has that; for packed rows of Llama, Mistral and Qwen one that needs no mask
    (`training/fine_tune/joined.py`)."""
    checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, a third more time."""
    trust_remote_code: bool = False


class TextSettings(Table):
    """The rows to train on."""

    path: str
    """A .jsonl or .parquet file, a folder of them, or a data set's Hub id."""
    prompt: str | None = None
    """Field of the prompt; found by its usual names when not given. A row may have `messages` instead."""
    answer: str | None = None
    """Field of the answer, likewise."""
    name: str | None = None
    """Field that names a row in reports, likewise; else its number."""
    style: Literal["auto", "plain", "instruct"] = "auto"
    """How rows with `reference` are asked: plain, the task's source alone, as our own models are; instruct, in words,
    with the answer in a fence. auto: plain where the model's chat template is ours."""
    where: dict[str, Any] | None = None
    """Only rows with these values: {right: true, split: train}."""
    limit: int | None = Field(default=None, ge=1, le=MOST)
    """Of the rows, the first ones."""
    length: int = Field(default=4096, ge=8, le=MOST)
    """Tokens of prompt and answer together at most; longer rows are left out, and named."""
    without_cuda: Literal["drop", "keep"] = "drop"
    """What becomes of rows whose answer has no kernel and no launch."""
    held_out: int = Field(default=0, ge=0, le=MOST)
    """Rows kept for the evaluation loss: those whose prompts have the smallest hashes."""
    workers: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Processes that tokenise; 0: one a core, where there are enough rows."""


class LossSettings(Table):
    """The loss by name (`training.losses`), and those of its parameters that are not its defaults."""

    OF_NAME: ClassVar[tuple[str, ...]] = (
        "tau",
        "lam",
        "window",
        "scope",
        "sample_weight",
        "alpha",
        "max_entropy",
        "kl_weight",
    )
    """What a recipe says of its own loss, and not of the one that an override puts in its place."""
    name: str = "sft"
    tau: float | None = Field(default=None, allow_inf_nan=False)
    lam: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    window: int | None = Field(default=None, ge=1, le=1_000_000)
    scope: Scope | None = None
    sample_weight: SampleWeight | None = None
    alpha: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_entropy: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    kl_weight: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    reduction: Reduction | None = None
    device_functions: bool = True
    """Whether `__device__` functions count as CUDA tokens."""

    def parameters(self) -> dict[str, Any]:
        """The loss's own parameters that were given."""
        return self.model_dump(exclude={"name", "device_functions"}, exclude_none=True)

    @model_validator(mode="after")
    def _known(self) -> LossSettings:
        from kernelwright.training.losses import load_loss

        try:
            load_loss(self.name, self.parameters())
        except ConfigError as error:
            raise ValueError(f"{error}" + (f" ({error.hint})" if error.hint else "")) from error
        return self


class UpdateSettings(Table):
    """The updates. Either epochs or steps says how many."""

    model_config = ConfigDict(allow_inf_nan=False)
    epochs: float | None = Field(default=None, gt=0, le=MOST)
    steps: int | None = Field(default=None, ge=1, le=MOST)
    batch: int = Field(default=32, ge=1, le=MOST)
    """Rows of one update over all devices: samples, or packed rows."""
    micro_batch: int = Field(default=1, ge=1, le=MOST)
    """Of these, how many a device computes at once."""
    packing: bool = False
    """Put several samples into a row of `data.length` tokens; they do not see each other."""
    lr: float = Field(default=1e-4, gt=0)
    schedule: str = "cosine"
    """transformers' name: cosine, linear, constant, constant_with_warmup, …"""
    warm_up: float = Field(default=0.03, ge=0, lt=1)
    """Share of the updates until the full learning rate."""
    weight_decay: float = Field(default=0.0, ge=0, le=1_000)
    clip: float = Field(default=1.0, ge=0)
    """Largest norm of the gradient; 0: no clipping."""
    beta2: float = Field(default=0.999, gt=0, lt=1)
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """auto: bfloat16 on a GPU, float32 on the processor."""
    log_every: int = Field(default=10, ge=1, le=MOST)
    eval_every: int | None = Field(default=None, ge=1, le=MOST)
    """Updates between losses on held-out rows."""
    save_every: int = Field(default=200, ge=1, le=MOST)
    """Updates between checkpoints, from which a stopped run goes on."""
    fsdp: Literal["no", "full", "gradients"] = "no"
    """Over several processes: each holds the whole model (no), a share of weights, gradients and optimizer (full), or
    gathers a share of the weights once an update (gradients)."""
    report_to: list[str] = []
    """transformers' reporters: tensorboard, wandb, trackio, …; log.jsonl is always written."""

    @model_validator(mode="after")
    def _one_budget(self) -> UpdateSettings:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of epochs and steps (set the other to null)")
        return self


def micro_batches(train: UpdateSettings, processes: int) -> int:
    """How many micro-batches of a process make an update. Raises `ConfigError` where rows do not divide."""
    accumulate, rest = divmod(train.batch, train.micro_batch * processes)
    if rest or not accumulate:
        raise ConfigError(
            f"train.batch = {train.batch} rows cannot be made of micro-batches of {train.micro_batch} on "
            f"{processes} processes",
            hint="make train.batch a multiple of train.micro_batch times the processes",
        )
    return accumulate


class BenchSettings(Table):
    """Evaluation by execution while training: what `kernelwright bench` measures, every so many updates and at the end.

    Each one is a run folder, `bench/step-NNNNNN`, that `report` and `compare` read."""

    suite: str
    """As `bench` takes it: starter, a folder, a JSONL file, kernelbench:LEVEL, cudabench:FILE[:LEVEL]."""
    every: int = Field(ge=1, le=MOST)
    """Updates between two of them."""
    at_start: bool = False
    """Measure the model before the first update as well."""
    samples: int = Field(default=4, ge=0, le=MOST_SAMPLES)
    """Of each task."""
    greedy: bool = False
    """One greedy sample a task beside them."""
    temperature: float = Field(default=0.8, ge=0, le=1_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    limit: int | None = Field(default=None, ge=1, le=MOST)
    """Only the first tasks."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    reference_field: str = "reference"
    """Of rows in a JSONL file."""
    id_field: str | None = None
    backend: Literal["auto", "cpu", "gpu"] = "auto"
    jobs: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Candidates judged at once; 0: one a core."""
    trials: int = Field(default=3, ge=1, le=MAX_TRIALS)
    timeout: float = Field(default=30.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    baselines: list[Literal["eager", "compile"]] = []
    """What a GPU times candidates against; nothing by default, which is fastest."""

    @model_validator(mode="after")
    def _something(self) -> BenchSettings:
        if not self.samples and not self.greedy:
            raise ValueError("samples = 0 without greedy draws nothing")
        return self


class PreferenceSettings(Table):
    """The loss on pairs of answers: TRL's, summed over the policy's own tokens."""

    kind: Literal["sigmoid", "ipo", "hinge", "sigmoid_norm"] = "sigmoid"
    """sigmoid: DPO's own, and M-DPO's where answers are whole rollouts. The others as TRL names them."""
    beta: float = Field(default=0.1, gt=0, le=1_000_000)
    """How far the model may go from where it began; M-DPO's eta."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    sft_weight: float = Field(default=0.0, ge=0, le=1_000_000)
    """Adds so much of the negative log-likelihood of the preferred answer (TRL's loss `sft`)."""


class DpoSettings(Table):
    """A whole run on preference pairs."""

    name: str = "dpo"
    note: str = ""
    """What this is, and where its numbers come from."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    model: BaseModelSettings
    data: TextSettings
    loss: PreferenceSettings = PreferenceSettings()
    train: UpdateSettings
    bench: BenchSettings | None = None

    @model_validator(mode="after")
    def _not_packed(self) -> DpoSettings:
        if self.train.packing:
            raise ValueError("pairs are not packed: set train.packing to false")
        return self


class SftSettings(Table):
    """A whole run of supervised fine-tuning."""

    name: str = "sft"
    note: str = ""
    """What this is, and where its numbers come from."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    model: BaseModelSettings
    data: TextSettings
    loss: LossSettings = LossSettings()
    train: UpdateSettings
    bench: BenchSettings | None = None


def check_there(path: str) -> None:
    """Raises `ConfigError` for a model's folder that is not there: what begins like one is no Hub id."""
    if os.path.isdir(path):
        return
    if path.startswith(("/", ".")):
        hint = "name a model's folder, or the id of a model on the Hub"
        raise ConfigError(f"model.path: there is no folder {path!r}", hint=hint)
    offline_where_silent()


def recipe_path(name: str) -> Path:
    """A settings file by path, or one of the package's recipes by name. Raises `ConfigError`."""
    path = Path(name)
    if path.is_file():
        return path
    folder = Path(str(resources.files("kernelwright") / "data" / "configs" / "recipes"))
    shipped = sorted(p.stem for p in folder.glob("*.yaml"))
    if path.suffix in ("", ".yaml") and path.stem in shipped and path.parent == Path("."):
        return folder / f"{path.stem}.yaml"
    raise ConfigError(f"there is no settings file {name!r}", hint=f"name a file, or one of {', '.join(shipped)}")
