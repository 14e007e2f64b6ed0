"""Attention over packed samples gives the same result as a mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from kernelwright.training.fine_tune.joined import NAME, attention, one_by_one, register

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LENGTHS = (7, 1, 19, 13)
MADE: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "mistral, a window of 5": (MistralConfig, MistralForCausalLM, {"sliding_window": 5}),
}


def joined(lengths: tuple[int, ...], seed: int = 0) -> dict[str, Any]:
    """Returns a joined row as TRL's collator makes it."""
    torch.manual_seed(seed)
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    return {
        "input_ids": torch.randint(0, 97, (1, sum(lengths))),
        "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }


def outcome(kind: str, implementation: str, row: dict[str, Any]) -> tuple[Tensor, list[Tensor]]:
    """Returns logits and gradients of a small model with fixed weights."""
    config, model_class, more = MADE[kind]
    torch.manual_seed(1)
    model = model_class._from_config(config(**SIZES, **more), attn_implementation=implementation)
    logits = model(**row, use_cache=False).logits
    logits.square().mean().backward()
    return logits.detach(), [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("kind", MADE)
def test_joined_samples_get_what_a_mask_gives(kind: str) -> None:
    row = joined(LENGTHS)
    with_mask = {k: v for k, v in row.items() if not k.startswith(("cu_", "max_"))}
    found, gradients = outcome(kind, register(), row)
    right, expected = outcome(kind, "sdpa", with_mask)
    torch.testing.assert_close(found, right, atol=2e-5, rtol=1e-4)
    assert len(gradients) == len(expected) > 10
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("kind", MADE)
def test_a_sample_does_not_depend_on_those_that_it_is_joined_with(kind: str) -> None:
    row = joined(LENGTHS)
    other = {**row, "input_ids": row["input_ids"].clone()}
    other["input_ids"][0, : LENGTHS[0]] = (row["input_ids"][0, : LENGTHS[0]] + 1) % 97
    first, second = (outcome(kind, register(), r)[0] for r in (row, other))
    assert not torch.equal(first[0, : LENGTHS[0]], second[0, : LENGTHS[0]])
    assert torch.equal(first[0, LENGTHS[0] :], second[0, LENGTHS[0] :])


@pytest.mark.parametrize("kind", MADE)
def test_padded_rows_are_as_they_were(kind: str) -> None:
    row = {"input_ids": torch.randint(0, 97, (2, 11)), "attention_mask": torch.ones(2, 11, dtype=torch.long)}
    row["attention_mask"][1, 8:] = 0
    found, right = (outcome(kind, name, row)[0] for name in (register(), "sdpa"))
    torch.testing.assert_close(found[0], right[0])
    torch.testing.assert_close(found[1, :8], right[1, :8])


def test_generation_with_a_cache_is_as_it_was() -> None:
    config, model_class, _ = MADE["llama"]
    answers = []
    for name in (register(), "sdpa"):
        torch.manual_seed(3)
        model = model_class._from_config(config(**SIZES), attn_implementation=name).eval()
        prompt = torch.arange(5)[None]
        seen = torch.ones_like(prompt)
        answers.append(model.generate(prompt, attention_mask=seen, max_new_tokens=9, do_sample=False))
    assert torch.equal(*answers)


def test_a_saved_model_names_no_implementation(tmp_path: Path) -> None:
    config, model_class, _ = MADE["llama"]
    model_class._from_config(config(**SIZES), attn_implementation=register()).save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text(encoding="utf-8")


def test_an_empty_sample_is_nothing() -> None:
    q, k, v = (torch.randn(1, heads, 9, 8) for heads in (4, 2, 2))
    found = one_by_one(q, k, v, [0, 4, 4, 9], 0.0, None, None)
    assert torch.equal(found, one_by_one(q, k, v, [0, 4, 9], 0.0, None, None)) and found.shape == (1, 9, 4, 8)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 64])
def test_one_kernel_gives_what_one_sample_after_the_other_gives(window: int | None) -> None:
    torch.manual_seed(0)
    lengths = (100, 3, 300, 109)
    made = [torch.randn(1, heads, 512, 64, device="cuda").bfloat16() for heads in (8, 2, 2)]
    back = torch.randn(1, 512, 8, 64, device="cuda").bfloat16()
    bounds = torch.tensor([0, *lengths]).cumsum(0).int().cuda()

    def results(whole: bool) -> list[Tensor]:
        inputs = [t.clone().requires_grad_() for t in made]
        if whole:
            more = {"cu_seq_lens_q": bounds, "max_length_q": 300, "sliding_window": window}
            out, _ = attention(None, *inputs, None, 0.0, 0.125, **more)
        else:
            out = one_by_one(*inputs, bounds.tolist(), 0.0, 0.125, window)
        out.backward(back)
        return [out.detach(), *(t.grad for t in inputs if t.grad is not None)]

    for found, right in zip(results(True), results(False), strict=True):
        torch.testing.assert_close(found.float(), right.float(), atol=4e-2, rtol=4e-2)
