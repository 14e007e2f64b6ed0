"""What a pre-training run can be told: the YAML (or TOML) files that `kernelwright train pretrain` takes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from kernelwright.errors import ConfigError

MOST = 10_000_000
"""Steps, updates and rows of whatever kind that a run may be told: more is a slip of the hand."""
MOST_JOBS = 4_096
"""Processes that make pairs or tokenise them, and candidates judged at once, a thread each."""
WIDEST = 1_048_576
"""A model's widths, and tokens of a row."""
SEEDS = 2**32


class Numbers(BaseModel):
    """Base of settings: `true` is no number, though Python and YAML's `yes` make 1 of it."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean(cls, value: object, info: ValidationInfo) -> object:
        annotation = cls.model_fields[str(info.field_name)].annotation
        kinds = {annotation, *get_args(annotation)}
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError("a number is wanted here, and not true or false")
        return value


class _PretrainTable(Numbers):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Generate(_PretrainTable):
    """Pairs made for this run. Each worker makes whole shards, so the pairs do not depend on how many there are."""

    seed: int = Field(default=0, ge=0, lt=SEEDS)
    count: int = Field(default=320_000, ge=1, le=100 * MOST)
    shard: int = Field(default=1_000, ge=1, le=MOST)
    """Pairs in a shard."""
    mistakes: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The share of answers with a realistic mistake."""
    plan: bool = True
    """Whether comments in an answer tell which operator of the task is computed where (`solutions.kernels.plan`)."""
    schedules: Literal["canonical", "apart", "mixed"] = "canonical"
    """`apart`: every operator has kernels of its own, so that an answer is put together from parts. `mixed`: one
    that is drawn for each task, and that the answer's first line names."""
    chains: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks of 32 tasks that are all chains of operators."""
    programs: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks that are all programs: operators drawn one by one, reading anything before them."""
    networks: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks that are all networks: several layers of a kind, which other chunks have none of."""
    rare: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks that are all operators and options that few tasks have, and other chunks none of."""


class DataSettings(_PretrainTable):
    """Where pairs come from: a corpus folder, or the generator."""

    corpus: str | None = None
    """Folder of JSONL or Parquet shards with `reference` and `answer`."""
    generate: Generate | None = None
    held_out: int = Field(default=500, ge=1, le=MOST)
    """Pairs for the held-out loss. Of a corpus, every reference of them is kept out of training."""
    workers: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Processes that make and tokenise pairs; 0: one a core."""
    patience: float = Field(default=120.0, gt=0, le=MOST)
    """Seconds without a pair after which a process is taken for hanging; another tries its shard once more."""
    against: tuple[str, ...] = ()
    """Suites (paths or names) that tasks must not be too near to: see `corpus.decontaminate`."""
    one_operator: Literal["remove", "keep"] = "remove"
    """Whether the AST rule holds for tasks of a single operator, which are bound to look alike."""

    @field_validator("against", mode="before")
    @classmethod
    def _one_suite(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_source(self) -> DataSettings:
        if (self.corpus is None) == (self.generate is None):
            raise ValueError("give either corpus or generate")
        return self


class TokenizerSettings(_PretrainTable):
    """The tokenizer: trained on the first pairs, or taken from a checkpoint's folder."""

    vocabulary: int = Field(default=4096, ge=260, le=65_536)
    pairs: int = Field(default=20_000, ge=1, le=MOST)
    folder: str | None = None


class ModelSettings(_PretrainTable):
    """The decoder's size (see `training.model.ModelShape`)."""

    hidden: int = Field(default=512, ge=16, le=WIDEST)
    layers: int = Field(default=8, ge=1, le=1_000)
    heads: int = Field(default=8, ge=1, le=WIDEST)
    kv_heads: int = Field(default=2, ge=1, le=WIDEST)
    feed_forward: int = Field(default=1536, ge=16, le=WIDEST)
    context: int = Field(default=4096, ge=64, le=WIDEST)
    theta: float = Field(default=10_000.0, gt=1, le=1e12)

    @model_validator(mode="after")
    def _fits(self) -> ModelSettings:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2 or self.heads % self.kv_heads:
            raise ValueError("hidden must be an even multiple of heads, and heads a multiple of kv_heads")
        return self


class TrainSettings(_PretrainTable):
    """The run. Exactly one of seconds (of training, compilation not counted), steps and tokens says how long."""

    seconds: float | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, ge=1, le=MOST)
    tokens: int | None = Field(default=None, ge=1, le=2**50)
    rows: int = Field(default=16, ge=1, le=WIDEST)
    """Packed rows of one update, over all processes."""
    length: int = Field(default=4096, ge=64, le=WIDEST)
    """Tokens of a row; longer pairs are left out."""
    accumulate: int = Field(default=1, ge=1, le=WIDEST)
    """Parts that one update's rows are computed in, where memory is short."""
    muon_lr: float = Field(default=0.02, gt=0, le=1_000)
    adam_lr: float = Field(default=3e-3, gt=0, le=1_000)
    weight_decay: float = Field(default=0.0, ge=0, le=1_000)
    warm_up: int = Field(default=60, ge=0, le=MOST)
    """Updates until the full learning rate."""
    flat: float = Field(default=0.4, ge=0, le=1)
    """The share of the run before the learning rate falls to zero."""
    fall: float = Field(default=1.0, gt=0, le=1_000)
    """How it falls: as what is left of the run to this power. 1 is a line, 2 spends most of the time at small rates."""
    attention: str = "auto"
    compile: bool = True
    precision: str = Field(default="auto", pattern="^(auto|bf16|fp32)$")
    """auto: bfloat16 on a GPU, float32 on the processor."""
    log_every: int = Field(default=20, ge=1, le=MOST)
    eval_every: int = Field(default=500, ge=1, le=MOST)
    save_seconds: float = Field(default=60.0, gt=0)
    """Between checkpoints from which a killed run resumes."""

    @model_validator(mode="after")
    def _one_budget(self) -> TrainSettings:
        if sum(x is not None for x in (self.seconds, self.steps, self.tokens)) != 1:
            raise ValueError("give exactly one of seconds, steps and tokens (set the others to null)")
        return self


class PretrainSettings(_PretrainTable):
    """A whole run."""

    name: str = "starter"
    note: str = ""
    """One sentence for the model card: what this checkpoint is for."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    data: DataSettings
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings

    @model_validator(mode="after")
    def _rows_fit(self) -> PretrainSettings:
        if self.train.attention == "rows" and self.train.length > self.model.context:
            raise ValueError("with attention = rows, train.length cannot exceed model.context")
        return self


def config_path(name: str) -> Path:
    """A settings file by path, or one of the package's by name. Raises `ConfigError`."""
    path = Path(name)
    if path.is_file():
        return path
    folder = Path(str(resources.files("kernelwright") / "data" / "configs"))
    shipped = sorted(p.stem for p in folder.glob("*.yaml"))
    if path.suffix in ("", ".yaml") and path.stem in shipped and path.parent == Path("."):
        return folder / f"{path.stem}.yaml"
    raise ConfigError(f"there is no settings file {name!r}", hint=f"name a file, or one of {', '.join(shipped)}")
