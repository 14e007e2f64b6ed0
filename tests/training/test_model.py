"""The trained decoder against transformers' own, packed rows against pairs one by one, and Muon's iteration."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernelwright.training.attention import KINDS, Spans, choose, prepare  # noqa: E402
from kernelwright.training.checkpoint import save_model  # noqa: E402
from kernelwright.training.model import IGNORE, ModelShape, TrainingDecoder  # noqa: E402
from kernelwright.training.pretrain.muon import Muon, orthogonalised  # noqa: E402
from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer  # noqa: E402

SMALL = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "feed_forward": 96, "context": 128}


def decoder(bias: bool = False, attention: str = "dense") -> TrainingDecoder:
    torch.manual_seed(1)
    model = TrainingDecoder(ModelShape(300, bias=bias, **SMALL), attention)
    for name, weight in model.named_parameters():  # as after training: no vector has its initial value
        if weight.ndim == 1:
            torch.nn.init.normal_(weight, mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
        elif "embed" not in name:
            torch.nn.init.normal_(weight, std=0.2)
    return model


def one_span(length: int, rows: int = 1) -> Spans:
    documents = torch.arange(rows).repeat_interleave(length).view(rows, length).int()
    return prepare("dense", Spans(documents, torch.arange(0, rows * length + 1, length).int(), length))


@pytest.mark.parametrize("bias", [True, False], ids=["qwen2", "llama"])
def test_transformers_computes_the_same_logits(tmp_path: Path, bias: bool) -> None:
    transformers = pytest.importorskip("transformers")
    model = decoder(bias)
    save_tokenizer(train_tokenizer(["some text of a kernel"], 300), tmp_path / "tokenizer", 128)
    save_model(model, tmp_path / "tokenizer", tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert type(loaded).__name__ == ("Qwen2ForCausalLM" if bias else "LlamaForCausalLM")
    tokens = torch.randint(0, 300, (2, 50))
    with torch.no_grad():
        for weight in model.parameters():  # the checkpoint is in bfloat16
            weight.copy_(weight.bfloat16())
        ours = model.logits(tokens, torch.arange(50).expand(2, 50), one_span(50, 2))
        theirs = loaded(tokens).logits
    assert torch.allclose(ours, theirs, atol=2e-4, rtol=2e-4)
    assert theirs.std() > 0.1  # not all alike


def test_pairs_of_a_row_do_not_see_each_other() -> None:
    model = decoder()
    first, second = torch.randint(0, 300, (20,)), torch.randint(0, 300, (31,))
    tokens = torch.cat([first, second])[None]
    positions = torch.cat([torch.arange(20), torch.arange(31)])[None]
    documents = torch.tensor([[1] * 20 + [2] * 31]).int()
    spans = prepare("dense", Spans(documents, torch.tensor([0, 20, 51]).int(), 51))
    with torch.no_grad():
        packed = model.logits(tokens, positions, spans)[0]
        for piece, at in ((first, 0), (second, 20)):
            alone = model.logits(piece[None], torch.arange(len(piece))[None], one_span(len(piece)))[0]
            assert torch.allclose(packed[at : at + len(piece)], alone, atol=1e-5)


def test_loss_is_the_sum_over_labels() -> None:
    model = decoder()
    tokens = torch.randint(0, 300, (1, 40))
    labels = torch.full((1, 40), IGNORE)
    labels[0, 10:20] = torch.randint(0, 300, (10,))
    positions = torch.arange(40)[None]
    with torch.no_grad():
        loss = model(tokens, positions, labels, one_span(40))
        logs = model.logits(tokens, positions, one_span(40))[0, 10:20].log_softmax(-1)
    assert torch.allclose(loss, -logs.gather(1, labels[0, 10:20, None]).sum())


def test_rotary_angles_turn_with_position() -> None:
    model = decoder()
    tokens = torch.randint(0, 300, (1, 12))
    with torch.no_grad():
        near = model.logits(tokens, torch.arange(12)[None], one_span(12))
        far = model.logits(tokens, torch.arange(12)[None] + 100, one_span(12))
        spread = model.logits(tokens, torch.arange(12)[None] * 7, one_span(12))
    assert torch.allclose(near, far, atol=1e-4)  # only distances count
    assert not torch.allclose(near, spread, atol=1e-2)


@pytest.mark.parametrize("shape", [(3, 40, 24), (2, 16, 64)])
def test_muon_makes_singular_values_alike(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalised(torch.randn(shape) ** 3))
    assert values.min() > 0.5 and values.max() < 1.3


def test_muon_learns_what_gradient_descent_learns() -> None:
    torch.manual_seed(0)
    wanted, weight = torch.randn(12, 8), torch.nn.Parameter(torch.zeros(12, 8))
    optimizer = Muon([weight], lr=0.05)
    for step in range(200):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 200)
        optimizer.zero_grad()
        (weight - wanted).square().sum().backward()
        optimizer.step()
    assert (weight - wanted).abs().max() < 0.3


def test_gpu_kinds_are_refused_without_one() -> None:
    assert choose("auto", "cpu", True) == "dense"
    with pytest.raises(Exception, match="needs a GPU"):
        choose("varlen", "cpu", True)
    with pytest.raises(Exception, match="unknown"):
        choose("quick", "cpu", True)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("dense", "rows")])
def test_kinds_agree_on_a_gpu(kind: str) -> None:
    from kernelwright.training.attention import works

    assert works(kind, compiled=True)


def test_operations_a_token_are_those_of_the_matrices() -> None:
    shape = ModelShape(4096)
    model = TrainingDecoder(shape)
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    assert shape.flops_a_token(0) == 6 * matrices  # tied: the embedding is the product with the vocabulary
    assert 25e6 < sum(p.numel() for p in model.parameters()) < 32e6
