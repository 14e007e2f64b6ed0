"""Settings of a fine-tuning run: the YAML (or TOML) files that `kernelwright train sft` and `train dpo` take."""

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
"""The most samples of a task."""


class Table(Numbers):
    """Base of all settings: frozen, without unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class LoraSettings(Table):
    """A low-rank adapter instead of full tuning."""

    r: int = Field(default=8, ge=1, le=65_536)
    alpha: int = Field(default=16, ge=1, le=MOST)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: str = "all-linear"
    """Module names, comma-separated, or all-linear (all linear layers except the head)."""


class BaseModelSettings(Table):
    """The base model."""

    path: str
    """A folder or a Hub id, in Hugging Face's format."""
    tune: Literal["full", "lora"] = "full"
    lora: LoraSettings = LoraSettings()
    """Used with tune = lora."""
    merge: bool = True
    """With LoRA: also save the merged model, which loads like any other."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The dtype of the weights. auto: bfloat16 for LoRA on a GPU, else float32 (on a GPU the forward pass is in
    bfloat16 either way)."""
    attention: str = "auto"
    """The implementation by transformers' name: sdpa, eager, flash_attention_2, …; auto: transformers' choice (sdpa if
    the model supports it), and for packed rows of Llama, Mistral and Qwen one without a mask
    (`training/fine_tune/joined.py`)."""
    checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    trust_remote_code: bool = False


class TextSettings(Table):
    """The rows to train on."""

    path: str
    """A .jsonl or .parquet file, a folder of them, or a data set's Hub id."""
    prompt: str | None = None
    """Field of the prompt; null: one of the usual names. A row may have `messages` instead."""
    answer: str | None = None
    """Field of the answer; null: one of the usual names."""
    name: str | None = None
    """Field with a row's name for reports; null: one of the usual names, else the row's number."""
    style: Literal["auto", "plain", "instruct"] = "auto"
    """The prompt of rows with `reference`: plain is the task's source alone, as for our own models; instruct is
    instructions in words, with the answer in a code fence. auto: plain if the model's chat template is ours."""
    where: dict[str, Any] | None = None
    """Use only rows with these values, e.g. {right: true, split: train}."""
    limit: int | None = Field(default=None, ge=1, le=MOST)
    """Use only so many rows, the first ones."""
    length: int = Field(default=4096, ge=8, le=MOST)
    """The most tokens of prompt and answer together; longer rows are left out and reported."""
    without_cuda: Literal["drop", "keep"] = "drop"
    """Drop or keep rows whose answer has no kernel and no launch."""
    held_out: int = Field(default=0, ge=0, le=MOST)
    """Rows held out for the evaluation loss: the rows whose prompts have the smallest hashes."""
    workers: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Processes that tokenise; 0: one per core, if there are enough rows."""


class LossSettings(Table):
    """The loss by name (`training.losses`), with the parameters that differ from its defaults."""

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
    """Parameters that a recipe sets for its own loss. They do not apply if an override names another loss."""
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
    """Count `__device__` functions as CUDA tokens."""

    def parameters(self) -> dict[str, Any]:
        """Returns the loss's parameters that are set."""
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
    """The updates. Set either epochs or steps."""

    model_config = ConfigDict(allow_inf_nan=False)
    epochs: float | None = Field(default=None, gt=0, le=MOST)
    steps: int | None = Field(default=None, ge=1, le=MOST)
    batch: int = Field(default=32, ge=1, le=MOST)
    """Rows of one update over all devices: samples, or packed rows."""
    micro_batch: int = Field(default=1, ge=1, le=MOST)
    """Rows that a device computes at once."""
    packing: bool = False
    """Pack several samples into a row of `data.length` tokens; they do not attend to each other."""
    lr: float = Field(default=1e-4, gt=0)
    schedule: str = "cosine"
    """The learning-rate schedule by transformers' name: cosine, linear, constant, constant_with_warmup, …"""
    warm_up: float = Field(default=0.03, ge=0, lt=1)
    """The warm-up's share of the updates."""
    weight_decay: float = Field(default=0.0, ge=0, le=1_000)
    clip: float = Field(default=1.0, ge=0)
    """The largest gradient norm; 0: no clipping."""
    beta2: float = Field(default=0.999, gt=0, lt=1)
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """auto: bfloat16 on a GPU, float32 on the processor."""
    log_every: int = Field(default=10, ge=1, le=MOST)
    eval_every: int | None = Field(default=None, ge=1, le=MOST)
    """Updates between evaluations of the held-out loss."""
    save_every: int = Field(default=200, ge=1, le=MOST)
    """Updates between checkpoints, from which a stopped run resumes."""
    fsdp: Literal["no", "full", "gradients"] = "no"
    """With several processes: each holds the whole model (no); shards of weights, gradients and optimizer state (full);
    or the same shards, with the weights gathered only once per update (gradients)."""
    report_to: list[str] = []
    """Reporters by transformers' names: tensorboard, wandb, trackio, …; log.jsonl is always written."""

    @model_validator(mode="after")
    def _one_budget(self) -> UpdateSettings:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of epochs and steps (set the other to null)")
        return self


def micro_batches(train: UpdateSettings, processes: int) -> int:
    """Returns the number of a process's micro-batches per update. Raises `ConfigError` if rows do not divide evenly."""
    accumulate, rest = divmod(train.batch, train.micro_batch * processes)
    if rest or not accumulate:
        raise ConfigError(
            f"train.batch = {train.batch} rows cannot be made of micro-batches of {train.micro_batch} on "
            f"{processes} processes",
            hint="make train.batch a multiple of train.micro_batch times the processes",
        )
    return accumulate


class BenchSettings(Table):
    """Evaluation by execution during training: runs `kernelwright bench` every so many updates and at the end.

    Each evaluation is a run folder, `bench/step-NNNNNN`, that `report` and `compare` read."""

    suite: str
    """The suite, as for `bench`: starter, a folder, a JSONL file, kernelbench:LEVEL, cudabench:FILE[:LEVEL]."""
    every: int = Field(ge=1, le=MOST)
    """Updates between evaluations."""
    at_start: bool = False
    """Also evaluate the model before the first update."""
    samples: int = Field(default=4, ge=0, le=MOST_SAMPLES)
    """Samples of each task."""
    greedy: bool = False
    """Also draw one greedy sample per task."""
    temperature: float = Field(default=0.8, ge=0, le=1_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    limit: int | None = Field(default=None, ge=1, le=MOST)
    """Use only so many tasks, the first ones."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    reference_field: str = "reference"
    """The field of a task's source in a JSONL file."""
    id_field: str | None = None
    backend: Literal["auto", "cpu", "gpu"] = "auto"
    jobs: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Candidates judged concurrently; 0: one per core."""
    trials: int = Field(default=3, ge=1, le=MAX_TRIALS)
    timeout: float = Field(default=30.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    baselines: list[Literal["eager", "compile"]] = []
    """The baselines that a GPU times; none by default, which is fastest."""

    @model_validator(mode="after")
    def _something(self) -> BenchSettings:
        if not self.samples and not self.greedy:
            raise ValueError("samples = 0 without greedy draws nothing")
        return self


class PreferenceSettings(Table):
    """The loss on pairs of answers: a loss of TRL, summed over the policy's own tokens."""

    kind: Literal["sigmoid", "ipo", "hinge", "sigmoid_norm"] = "sigmoid"
    """sigmoid: the loss of DPO, and of M-DPO if answers are whole rollouts. The other names are TRL's."""
    beta: float = Field(default=0.1, gt=0, le=1_000_000)
    """The strength of the KL constraint to the reference model; M-DPO's eta."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    sft_weight: float = Field(default=0.0, ge=0, le=1_000_000)
    """The weight of the preferred answer's negative log-likelihood, added to the loss (TRL's loss `sft`)."""


class DpoSettings(Table):
    """A whole run on preference pairs."""

    name: str = "dpo"
    note: str = ""
    """A note about the run, e.g. the source of its settings."""
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
    """A note about the run, e.g. the source of its settings."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    model: BaseModelSettings
    data: TextSettings
    loss: LossSettings = LossSettings()
    train: UpdateSettings
    bench: BenchSettings | None = None


def check_there(path: str) -> None:
    """Raises `ConfigError` for a model folder that does not exist: a Hub id cannot begin with `/` or `.`."""
    if os.path.isdir(path):
        return
    if path.startswith(("/", ".")):
        hint = "name a model's folder, or the id of a model on the Hub"
        raise ConfigError(f"model.path: there is no folder {path!r}", hint=hint)
    offline_where_silent()


def recipe_path(name: str) -> Path:
    """Returns the path of a settings file, given by path or by the name of a shipped recipe. Raises `ConfigError`."""
    path = Path(name)
    if path.is_file():
        return path
    folder = Path(str(resources.files("kernelwright") / "data" / "configs" / "recipes"))
    shipped = sorted(p.stem for p in folder.glob("*.yaml"))
    if path.suffix in ("", ".yaml") and path.stem in shipped and path.parent == Path("."):
        return folder / f"{path.stem}.yaml"
    raise ConfigError(f"there is no settings file {name!r}", hint=f"name a file, or one of {', '.join(shipped)}")
