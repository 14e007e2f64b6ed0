"""Settings of a pre-training run: the YAML (or TOML) files that `kernelwright train pretrain` takes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from kernelwright.errors import ConfigError

MOST = 10_000_000
"""The upper bound on steps, updates and rows; more is taken for a typing error."""
MOST_JOBS = 4_096
"""The upper bound on worker processes, and on concurrently judged candidates, one thread each."""
WIDEST = 1_048_576
"""The upper bound on a model's widths and on the tokens of a row."""
SEEDS = 2**32


class Numbers(BaseModel):
    """Base of settings. Rejects booleans as numbers: Python converts `true`, and YAML's `yes`, to 1."""

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
    """Pairs made for this run. Each worker makes whole shards, so the pairs do not depend on the number of workers."""

    seed: int = Field(default=0, ge=0, lt=SEEDS)
    count: int = Field(default=320_000, ge=1, le=100 * MOST)
    shard: int = Field(default=1_000, ge=1, le=MOST)
    """Pairs in a shard."""
    mistakes: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The share of answers with a realistic mistake."""
    plan: bool = True
    """Add comments to an answer that name the task's operator at each place (`solutions.kernels.plan`)."""
    schedules: Literal["canonical", "apart", "mixed"] = "canonical"
    """`apart`: every operator has its own kernels, so that an answer is composed of parts. `mixed`: a schedule drawn
    for each task and named in the answer's first line."""
    chains: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks (32 tasks each) of only chains of operators."""
    programs: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks of only programs: operators drawn one by one, each reading any earlier value."""
    networks: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks of only networks: several layers of a kind. Other chunks contain none."""
    rare: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of chunks of only rare operators and options. Other chunks contain none."""


class DataSettings(_PretrainTable):
    """The source of pairs: a corpus folder or the generator."""

    corpus: str | None = None
    """Folder of JSONL or Parquet shards with `reference` and `answer`."""
    generate: Generate | None = None
    held_out: int = Field(default=500, ge=1, le=MOST)
    """Pairs for the held-out loss. For a corpus, no pair with the same reference is trained on."""
    workers: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Processes that make and tokenise pairs; 0: one per core."""
    patience: float = Field(default=120.0, gt=0, le=MOST)
    """Seconds without a pair after which a process counts as hanging; another process retries its shard once."""
    against: tuple[str, ...] = ()
    """Suites (paths or names) to decontaminate against: see `corpus.decontaminate`."""
    one_operator: Literal["remove", "keep"] = "remove"
    """Apply the AST rule to tasks of a single operator (remove) or not (keep); their ASTs are often equal."""

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
    """The tokenizer: trained on the first pairs, or copied from a checkpoint's folder."""

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
    """The updates. Exactly one of seconds (of training, without compilation), steps and tokens sets the length."""

    seconds: float | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, ge=1, le=MOST)
    tokens: int | None = Field(default=None, ge=1, le=2**50)
    rows: int = Field(default=16, ge=1, le=WIDEST)
    """Packed rows of one update, over all processes."""
    length: int = Field(default=4096, ge=64, le=WIDEST)
    """Tokens of a row; longer pairs are dropped."""
    accumulate: int = Field(default=1, ge=1, le=WIDEST)
    """Micro-batches of one update, to save memory."""
    muon_lr: float = Field(default=0.02, gt=0, le=1_000)
    adam_lr: float = Field(default=3e-3, gt=0, le=1_000)
    weight_decay: float = Field(default=0.0, ge=0, le=1_000)
    warm_up: int = Field(default=60, ge=0, le=MOST)
    """Updates of linear warm-up to the full learning rate."""
    flat: float = Field(default=0.4, ge=0, le=1)
    """The share of the run before the learning rate decays to zero."""
    fall: float = Field(default=1.0, gt=0, le=1_000)
    """The exponent of the decay: the rate follows the remaining share of the run to this power. 1 is linear, 2 spends
    most of the time at small rates."""
    attention: str = "auto"
    compile: bool = True
    precision: str = Field(default="auto", pattern="^(auto|bf16|fp32)$")
    """auto: bfloat16 on a GPU, float32 on the processor."""
    log_every: int = Field(default=20, ge=1, le=MOST)
    eval_every: int = Field(default=500, ge=1, le=MOST)
    save_seconds: float = Field(default=60.0, gt=0)
    """Seconds between checkpoints from which a killed run resumes."""

    @model_validator(mode="after")
    def _one_budget(self) -> TrainSettings:
        if sum(x is not None for x in (self.seconds, self.steps, self.tokens)) != 1:
            raise ValueError("give exactly one of seconds, steps and tokens (set the others to null)")
        return self


class PretrainSettings(_PretrainTable):
    """A whole run."""

    name: str = "starter"
    note: str = ""
    """One sentence for the model card: the purpose of the checkpoint."""
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
    """Returns the path of a settings file, given by path or by the name of a shipped one. Raises `ConfigError`."""
    path = Path(name)
    if path.is_file():
        return path
    folder = Path(str(resources.files("kernelwright") / "data" / "configs"))
    shipped = sorted(p.stem for p in folder.glob("*.yaml"))
    if path.suffix in ("", ".yaml") and path.stem in shipped and path.parent == Path("."):
        return folder / f"{path.stem}.yaml"
    raise ConfigError(f"there is no settings file {name!r}", hint=f"name a file, or one of {', '.join(shipped)}")
