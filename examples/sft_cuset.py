"""Fine-tunes a tiny random Qwen2 with CuSeT in one file, in under a minute on a CPU.

    python examples/sft_cuset.py [STEPS] [LOSS]

The data are this package's own example kernels with their tasks. Tokens are bytes, so that no tokenizer is needed. The
file has the parts of a real run in small: prompts and targets, the mask of CUDA tokens, the gold tokens'
log-probabilities, the loss by name, the update. At the end it shows the loss's weights on one sample, line by line.
"""

from __future__ import annotations

import sys
import time
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelwright.prompts.spans import token_mask
from kernelwright.training.losses import LOSSES, regions

DATA = Path(str(resources.files("kernelwright") / "data"))
BATCH, LONGEST, LEARNING_RATE, END = 2, 2048, 5e-3, 0
PARAMETERS: dict[str, dict[str, Any]] = {"cuset": {"tau": 0.1, "lam": 1.0, "window": 256}}


@dataclass(frozen=True)
class Sample:
    """One task with a correct answer, as tokens: bytes, and 0 for the end."""

    name: str
    answer: str
    tokens: tuple[int, ...]
    target: tuple[bool, ...]
    """The mask of trained tokens: the answer's, not the task's."""
    cuda: tuple[bool, ...]
    """The mask of tokens in a kernel or a launch."""


def offsets(text: str) -> list[tuple[int, int]]:
    """Returns the character span of each byte, like a tokenizer's offset mapping."""
    return [(i, i + 1) for i, character in enumerate(text) for _ in character.encode()]


def samples() -> list[Sample]:
    """Returns the bundled candidates that are known to be correct, with their tasks."""
    manifest = tomllib.loads((DATA / "candidates" / "expected.toml").read_text())
    found = []
    for task, candidates in manifest.items():
        prompt = (DATA / "tasks" / task / "reference.py").read_text()
        for file, expected in candidates.items():
            if expected["verdict"] != "correct":
                continue
            answer = (DATA / "candidates" / task / file).read_text()
            before, after = list(prompt.encode()), list(answer.encode())
            found.append(
                Sample(
                    f"{task}/{file}",
                    answer,
                    (*before, *after, END)[:LONGEST],
                    (*[False] * len(before), *[True] * (len(after) + 1))[:LONGEST],
                    (*[False] * len(before), *token_mask(answer, offsets(answer)).tolist(), False)[:LONGEST],
                )
            )
    return found


def collated(chosen: list[Sample]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns tokens, target mask and CUDA mask, padded on the right: `(batch, length)`."""
    length = max(len(s.tokens) for s in chosen)

    def padded(rows: list[tuple[int, ...]] | list[tuple[bool, ...]], kind: torch.dtype) -> Tensor:
        return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], dtype=kind)

    return (
        padded([s.tokens for s in chosen], torch.long),
        padded([s.target for s in chosen], torch.bool),
        padded([s.cuda for s in chosen], torch.bool),
    )


def gold_log_probs(model: Any, tokens: Tensor) -> Tensor:
    """Returns log-probabilities of each row's tokens from the second on, given those before: `(batch, length - 1)`."""
    logits = model(input_ids=tokens).logits[:, :-1].float()
    return torch.gather(logits.log_softmax(-1), 2, tokens[:, 1:, None])[..., 0]


def tiny_model() -> Any:
    """Returns a Qwen2 with random weights, small enough for a laptop's CPU."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=LONGEST,
        pad_token_id=END,
        eos_token_id=END,
        bos_token_id=None,
        attention_dropout=0.0,
    )
    return Qwen2ForCausalLM(config)


def show(model: Any, sample: Sample, parameters: dict[str, Any]) -> None:
    """Prints a sample's answer by line, with mean confidence and weight of tokens; `>` marks the hardest window."""
    tokens, target, cuda = collated([sample])
    with torch.no_grad():
        log_probs = gold_log_probs(model, tokens)
    out = LOSSES["cuset"](log_probs, target[:, 1:], cuda[:, 1:], **parameters)
    hardest = regions(log_probs.exp(), target[:, 1:], parameters["window"])
    least = hardest.hardest.item()
    print(f"\n{sample.name}: confidence in the hardest window {least:.2f}, so the sample weighs {1 - least:.2f}.")
    print("Mean confidence and mean weight of each line's tokens:")
    assert out.token_weights is not None
    begin = sample.target.index(True) - 1
    confidence, weights = log_probs.exp()[0, begin:].tolist(), out.token_weights[0, begin:].tolist()
    place = 0
    for line in sample.answer.encode().splitlines(keepends=True):
        here = slice(place, min(place + len(line), len(weights)))
        if not weights[here]:
            break
        inside = hardest.start.item() - begin < here.stop and here.start < hardest.end.item() - begin
        means = (sum(row[here]) / len(row[here]) for row in (confidence, weights))
        print("{} {:.2f} {:.2f}  ".format(">" if inside else " ", *means) + line.decode(errors="replace").rstrip()[:90])
        place += len(line)


def main(steps: int = 30, loss_name: str = "cuset") -> list[float]:
    """Trains and shows one sample; returns the negative log-likelihood a token by step."""
    torch.manual_seed(0)
    data = samples()
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    curve: list[float] = []
    started = time.perf_counter()
    for step in range(steps):
        chosen = [data[(step * BATCH + i) % len(data)] for i in range(BATCH)]
        tokens, target, cuda = collated(chosen)
        # A position predicts the next token, so the masks are those of the predicted tokens.
        out = LOSSES[loss_name](
            gold_log_probs(model, tokens), target[:, 1:], cuda[:, 1:], **PARAMETERS.get(loss_name, {})
        )
        optimizer.zero_grad()
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        stats = {name: value.item() for name, value in out.stats.items()}
        curve.append(stats["nll"])
        if step % 5 == 0 or step == steps - 1:
            more = "  ".join(f"{k} {stats[k]:.3f}" for k in ("below_tau", "cuda_share", "sample_weight") if k in stats)
            print(
                f"step {step:3}  loss {out.loss.item():.3f}  nll a token {stats['nll']:.3f}  "
                f"confidence {stats['confidence']:.3f}  {more}  {time.perf_counter() - started:.0f} s"
            )
    show(model, min((s for s in data if any(s.cuda)), key=lambda s: len(s.tokens)), PARAMETERS["cuset"])
    return curve


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30, *sys.argv[2:3])
