"""The precision of products: who is right and wrong under `float32` and `tf32`, and the errors that are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sets.precision import CHAINS, EXACT, candidate, task
from sets.precision.orders import ORDERS, InOrder

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.compare.product_look import DRAWS, GAIN
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.prompts import initial_messages
from kernelwright.records import Candidate, Evaluation, Precision, SourceFile, Task
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import load_task, reference_runs, rounded_products
from kernelwright.tasks import workloads as task_workloads

LOWER = ("tf32_one", "tf32_one_chopped", "fp16_one", "fp16_one_scaled", "bf16_one")


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", seed=11), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, product: str, chain: str, k: int, precision: Precision | None = None) -> Evaluation:
    options = EvalOptions(backend="cpu", seed=11, precision=precision)
    return evaluator.evaluate(task(chain, 33, k, 24), candidate(product, chain), options)


@pytest.mark.parametrize("product", LOWER)
@pytest.mark.parametrize("chain", ["uniform", "linear_logsumexp", "linear_scaled_residual"])
def test_one_product_of_a_lower_precision_is_wrong(evaluator: Evaluator, product: str, chain: str) -> None:
    found = judged(evaluator, product, chain, 512)
    assert found.verdict == "wrong", found.told_errors()


@pytest.mark.parametrize("product", EXACT)
@pytest.mark.parametrize("chain", ["uniform", "linear_square_mean", "linear_scaled_residual"])
def test_split_products_and_any_order_of_float32_are_correct(evaluator: Evaluator, product: str, chain: str) -> None:
    found = judged(evaluator, product, chain, 2048)
    assert found.verdict == "correct", found.reason


@pytest.mark.parametrize("product", ["tf32_three", "fp16_three_scaled"])
def test_a_split_product_has_at_most_the_error_of_float32(evaluator: Evaluator, product: str) -> None:
    """The machine adds the products of one instruction exactly; what remains is the error of the split."""
    mine, plain = (judged(evaluator, name, "normal", 1000).errors for name in (product, "float32_forward"))
    assert mine is not None and plain is not None
    assert mine[1].rms <= plain[1].rms and mine[1].largest <= plain[1].largest


@pytest.mark.parametrize(
    ("product", "verdict"),
    [("tf32_one", "correct"), ("tf32_one_chopped", "correct"), ("fp16_three_scaled", "correct"), ("bf16_one", "wrong")],
)
@pytest.mark.parametrize("chain", ["normal", "linear_sigmoid_sum", "linear_scaled_residual"])
def test_tf32_allows_tf32_and_not_bf16(evaluator: Evaluator, chain: str, product: str, verdict: str) -> None:
    found = judged(evaluator, product, chain, 512, "tf32")
    assert found.verdict == verdict, found.reason or found.told_errors()
    assert found.options["precision"] == "tf32"


ROUNDED = r'''
import torch
import torch.nn as nn
from kernelwright.cuda import Module
kernels = Module(r"""
extern "C" __global__ void run(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __uint_as_float(__float_as_uint(2.f * x[i]) & 0xffffe000u);
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.run[((x.numel() + 255) // 256, 1, 1), (256, 1, 1)](x, y, x.numel())
        return y
'''


def test_tf32_is_for_products_alone(evaluator: Evaluator) -> None:
    source = (
        "import torch, torch.nn as nn\nn = 3000\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return x * 2.0\ndef get_inputs():\n    return [torch.randn(n)]\n"
    )
    code = Candidate(language="cuda", sources=(SourceFile(path="candidate.py", content=ROUNDED),))
    asked = Task(task_id="twice", source=source, precision="tf32")
    assert evaluator.evaluate(asked, code).verdict == "wrong"


def test_keys_of_float32_are_those_of_versions_without_a_precision() -> None:
    asked = Task(task_id="relu", source="import torch\n")
    code = Candidate(language="cuda", sources=(SourceFile(path="a.py", content="x = 1\n"),))
    known = "e32ff1fbb4fa5288483e9ea57f959d20a709141ed2b9cc80d2febb5151ff5f91"
    keys = {p: EvalOptions(backend="cpu", seed=3, precision=p).key(asked, code) for p in (None, "float32", "tf32")}
    assert asked.content_hash == "1cc6c5ceb052ddda2b2b3192e6deb8115223ceec9bab957a38978f62ac442762"
    assert keys[None] == keys["float32"] == known != keys["tf32"]


def test_tasks_state_their_precision(tmp_path: Path) -> None:
    source = task("normal", 8, 16, 8).source
    for name, text, settings in (
        ("plain", source, ""),
        ("constant", f'KERNELWRIGHT_PRECISION = "tf32"\n{source}', ""),
        ("folder", source, 'precision = "tf32"\n'),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "reference.py").write_text(text)
        (folder / "task.toml").write_text(f'name = "{name}"\n{settings}')
        (tmp_path / f"{name}.py").write_text(text)
    assert load_task(str(tmp_path / "plain")).precision == load_task(str(tmp_path / "plain.py")).precision == "float32"
    assert load_task(str(tmp_path / "constant")).precision == load_task(str(tmp_path / "constant.py")).precision
    assert load_task(str(tmp_path / "constant.py")).precision == load_task(str(tmp_path / "folder")).precision == "tf32"
    (tmp_path / "wrong.py").write_text(f'KERNELWRIGHT_PRECISION = "fp8"\n{source}')
    with pytest.raises(TaskError, match="KERNELWRIGHT_PRECISION"):
        load_task(str(tmp_path / "wrong.py"))


def test_prompts_tell_the_precision() -> None:
    asked = task("normal", 8, 16, 8)
    plain, tf32 = ("".join(m.content for m in initial_messages(one)) for one in (asked, asked.at("tf32")))
    assert plain != tf32 and "TF32" in tf32
    assert asked.at("float32") is asked.at(None) is asked


def test_operands_are_rounded_to_their_significant_bits() -> None:
    values = torch.randn(4000, dtype=torch.float64).float()
    bits = values.view(torch.int32)
    cut = (bits & ~0x1FFF).view(torch.float32)
    near = ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    assert torch.equal(rounded_products.chopped(rounded_products.TF32)(values), cut)
    assert torch.equal(rounded_products.nearest(rounded_products.TF32)(values), near)
    assert torch.equal(rounded_products.nearest(rounded_products.BFLOAT16)(values), values.bfloat16().float())
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
    assert rounded_products.nearest(8)(odd).tolist()[1:] == odd.tolist()[1:]
    assert rounded_products.nearest(8)(odd)[0].isnan()


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("k", [64, 4096])
@pytest.mark.parametrize("order", ORDERS)
def test_noise_covers_any_order_of_summation(chain: str, k: int, order: str) -> None:
    """A product of float32 sums has at most the error that GAIN times the noisy run allows."""
    namespace = task_workloads.instantiate(task(chain, 24, k, 16).source, {})
    model = task_inputs.construct(namespace, 1)
    values = task_inputs.make_inputs(namespace, "own", 5)
    exact = reference_runs.reference_outputs(model, values, torch.float64, 0)
    with InOrder(order):
        ordered = reference_runs.reference_outputs(model, values, None, 0)
    noisy = [rounded_products.outputs(model, values, 0, noise_seed=k) for k in range(DRAWS)]
    own = reference_runs.reference_outputs(model, values, None, 0)
    runs = [r for r in (*noisy, own) if r is not None]
    errors = [e[1] for r in runs for e in rounded_products.errors(r, exact) if e is not None]
    (mine,) = [e[1] for e in rounded_products.errors(ordered, exact) if e is not None]
    assert mine <= GAIN["float32"] * max(errors)


def test_the_referee_judges_by_the_same_precision(pool: Pool) -> None:
    """The GPU's way, on the CPU: the referee's honest run rounds operands, and the candidate's program is repeated."""
    options = EvalOptions(backend="gpu", seed=3, precision="tf32", timing_seconds=0.1, program_first=False)
    chain = "linear_scaled_residual"
    with Evaluator(options, pool=pool, device="cpu") as evaluator:
        right, wrong = (
            evaluator.evaluate(task(chain, 33, 200, 24), candidate(name, chain)) for name in ("tf32_one", "bf16_one")
        )
    assert (right.verdict, wrong.verdict) == ("correct", "wrong"), right.reason
    assert right.environment.road == "program", right.environment.replayed
    assert right.errors is not None and right.errors[1].reference_rms is not None


def test_a_split_product_gets_no_advice_on_its_precision(evaluator: Evaluator) -> None:
    found = judged(evaluator, "fp16_three_scaled", "normal", 1000)
    assert "lower-precision" not in [finding.rule for finding in found.findings]
