"""Judges products in several arithmetics under each precision, and prints the verdicts beside what is expected.

    python benchmarks/precision.py [--backend gpu] [--jobs 4] [--json FILE]
    python benchmarks/precision.py --errors [--json FILE]        # on a GPU: errors of real tensor cores
    python benchmarks/precision.py --calibrate [--json FILE]     # the factors of the look at products

Candidates: float32 in several orders; three TF32 products and three scaled FP16 products of split operands; one product
of TF32, FP16 or BF16 operands. Exit status 1 if a verdict is not as expected.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import speed_common
from result_file import write_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.precision import CHAINS, EXACT, PRODUCTS, candidate, task

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Evaluation, Precision

TF32 = ("tf32_one", "tf32_one_chopped", "fp16_one_scaled")
"""Products with the error of TF32: FP16 has as many significant bits."""
JUDGED = ("float32_forward", "tf32_three", "fp16_three_scaled", "tf32_one", "tf32_one_chopped", "bf16_one")
CHOSEN = ("normal", "uniform", "linear_sigmoid_sum", "linear_scaled_residual")
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32")


def expected(product: str, precision: Precision) -> str:
    """Returns the verdict that a product deserves."""
    return "correct" if product in EXACT or (precision == "tf32" and product in TF32) else "wrong"


def judge(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Judges every product in every chain under each precision; prints a line each."""
    m, k, n = args.size
    cases = [(c, p, x) for x in PRECISIONS for c in CHOSEN for p in JUDGED]
    rows: list[dict[str, Any]] = []
    options = EvalOptions(
        backend=args.backend,
        seed=args.seed,
        timing_seconds=0.2,
        program_first=args.program_first,
        timeout=60.0,
    )
    with Evaluator(options) as evaluator:
        for precision in PRECISIONS:
            here = [(c, p) for c, p, x in cases if x == precision]
            pairs = [(task(c, m, k, n).at(precision), candidate(p, c)) for c, p in here]
            found = evaluate_many(pairs, pool=evaluator, jobs=args.jobs)
            for (chain, product), result in zip(here, found, strict=True):
                rows.append(_judged(chain, product, precision, result))
                print(_line(rows[-1]), flush=True)
    return rows


def _judged(chain: str, product: str, precision: Precision, result: Evaluation | Exception) -> dict[str, Any]:
    wanted = expected(product, precision)
    row = {"precision": precision, "chain": chain, "product": product, "expected": wanted}
    if not isinstance(result, Evaluation):
        return {**row, "verdict": "task error", "reason": str(result), "right": False}
    errors = result.errors[1].plain() if result.errors is not None else None
    timing = result.timing.plain() if result.timing is not None else None
    if timing is not None:
        timing.pop("samples")
    facts = {"verdict": result.verdict, "reason": result.reason[:300], "errors": errors, "timing": timing}
    return {**row, **facts, "road": result.environment.road, "right": result.verdict == wanted}


def _line(row: dict[str, Any]) -> str:
    errors = row.get("errors")
    text = ""
    if errors:
        text = "{largest:.1e} {rms:.1e}  own {reference_largest:.1e} {reference_rms:.1e}".format(
            **{name: value if value is not None else float("nan") for name, value in errors.items()}
        )
    mark = "" if row["right"] else f"  EXPECTED {row['expected']}: {row['reason'][:160]}"
    head = f"{row['precision']:8} {row['chain']:22} {row['product']:18} {row['verdict']:9}"
    eager = (row.get("timing") or {}).get("eager_ms")
    return f"{head} {text}{f'  eager {eager:.4f} ms' if eager else ''}{mark}"


def errors_on_gpu(_args: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs each product on the GPU itself, beside cuBLAS in float32 and in TF32; prints errors against float64."""
    import torch

    rows = []
    modules: dict[str, dict[str, Any]] = {name: {"__name__": name} for name in PRODUCTS}
    for name, namespace in modules.items():
        exec(compile(candidate(name, "normal").text, name, "exec"), namespace)
    for values in ("normal", "uniform", "heavy"):
        for k in (64, 512, 4096, 8192):
            a, b = (_drawn(values, s).cuda() for s in ((512, k), (k, 256)))
            exact = a.double() @ b.double()
            made = {name: module["ModelNew"]()(a, b) for name, module in modules.items()}
            for allowed in (False, True):
                torch.backends.cuda.matmul.allow_tf32 = allowed
                made["cublas_tf32" if allowed else "cublas_float32"] = a @ b
            for name, out in made.items():
                found = speed_common.errors(out, exact)
                largest, rms = found["largest"], found["rms"]
                rows.append({"values": values, "k": k, "product": name, "largest": largest, "rms": rms, "right": True})
                print(f"{values:8} {k:5} {name:18} {largest:.2e} {rms:.2e}", flush=True)
    return rows


def _drawn(values: str, shape: tuple[int, int]) -> Any:
    import torch

    generator = torch.Generator().manual_seed(shape[0] * 7 + shape[1])
    if values == "uniform":
        return torch.rand(shape, generator=generator)
    normal = torch.randn(shape, generator=generator)
    return normal if values == "normal" else normal * torch.exp(2.5 * torch.randn(shape, generator=generator))


def calibrate(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures, for each chain, length and kind of values, the errors that the look at products compares: of honest
    orders over the noisy runs, and of products in lower precision over what is allowed."""
    import torch
    from sets.precision.orders import ORDERS, InOrder

    from kernelwright.evaluation.compare.product_look import DRAWS, GAIN
    from kernelwright.tasks import distributions, reference_runs, rounded_products
    from kernelwright.tasks import inputs as task_inputs
    from kernelwright.tasks import workloads as task_workloads

    rows = []
    for chain in CHAINS:
        for k in (64, 512, 2048, 8192):
            namespace = task_workloads.instantiate(task(chain, 24, k, 16).source, {})
            for kind in distributions.usable_distributions(namespace, seed=args.seed):
                model = task_inputs.construct(namespace, args.seed)
                values = task_inputs.make_inputs(namespace, kind, args.seed + k)
                exact = reference_runs.reference_outputs(model, values, torch.float64, 0)

                def rms(
                    operands: Any = None, noise: int | None = None, at: tuple[Any, ...] = (model, values, exact)
                ) -> float:
                    made = rounded_products.outputs(at[0], at[1], 0, operands=operands, noise_seed=noise)
                    return _only(rounded_products.errors(made or [], at[2]))

                honest = {"torch": _only(rounded_products.errors(_own(model, values), exact))}
                for order in ORDERS:
                    with InOrder(order):
                        honest[order] = _only(rounded_products.errors(_own(model, values), exact))
                rough = max(honest["torch"], *(rms(noise=draw) for draw in range(DRAWS)))
                low = rms(rounded_products.nearest(rounded_products.TF32))
                limit = GAIN["float32"] * rough
                rows.append(
                    {
                        "chain": chain,
                        "k": k,
                        "values": kind,
                        **honest,
                        "rough": rough,
                        "tf32": low,
                        "chopped": rms(rounded_products.chopped(rounded_products.TF32)),
                        "bf16": rms(rounded_products.nearest(rounded_products.BFLOAT16)),
                        "told_apart": low > limit,
                        "right": max(honest.values()) <= max(limit, low / 2),
                    }
                )
    told = [r for r in rows if r["told_apart"]]
    worst = max(max(r[o] for o in ORDERS) / r["rough"] for r in rows)
    print(f"{len(rows)} calls; {len(told)} tell TF32 from float32; honest orders over rough: at most {worst:.2f}")
    for chain in CHAINS:
        here = [r for r in rows if r["chain"] == chain]
        apart = [r["tf32"] / r["rough"] for r in here if r["told_apart"]]
        print(f"{chain:24} {len(apart)} of {len(here)} tell; TF32 over rough {min(apart):.0f} to {max(apart):.0f}")
    return rows


def _own(model: Any, values: Any) -> Any:
    from kernelwright.tasks import reference_runs

    return reference_runs.reference_outputs(model, values, None, 0)


def _only(found: list[tuple[float, float] | None]) -> float:
    return max((pair[1] for pair in found if pair is not None), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--size", type=int, nargs=3, default=(128, 1024, 96), metavar=("M", "K", "N"))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--program-first", action="store_true", help="on a GPU: the functional machine judges first")
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    began = time.perf_counter()
    rows = calibrate(args) if args.calibrate else errors_on_gpu(args) if args.errors else judge(args)
    wrong = [row for row in rows if not row["right"]]
    print(f"{len(rows)} rows, {len(wrong)} not as expected, {time.perf_counter() - began:.0f} s")
    if args.json:
        write_text(args.json, json.dumps({"benchmark": "precision", "rows": rows}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
