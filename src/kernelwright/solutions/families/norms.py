"""Normalisation layers.

Layer and RMS norm run along rows and are lowered to reductions. Batch norm with running statistics is elementwise.
Batch, instance and group norm with statistics of their own share a kernel; they differ in their rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.solutions.families.blocks import block_function
from kernelwright.solutions.families.sampling import grid, sampled
from kernelwright.solutions.kernels.host import add_lines
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor
from kernelwright.solutions.read.lowering import call, number, reduce, rule
from kernelwright.solutions.read.reading import Node, Unreadable

_NONE = ("None", "")


def _given(args: tuple[Node, ...], at: int) -> Node | None:
    return args[at] if len(args) > at and args[at].text not in _NONE else None


def _weight(writer: Writer, node: Node, name: str) -> Node | None:
    """Returns a layer's weight or bias, or None."""
    path = node.text.removeprefix("self.")
    known = writer.facts.attributes
    affine = known.get(f"{path}.affine", known.get(f"{path}.elementwise_affine", True))
    if affine is False or (name == "bias" and (known.get(f"{path}.bias") is False)):
        return None
    if affine is None:
        raise Unreadable("whether a layer has weights depends on what the text does not fix")
    return Node("tensor", text=f"{node.text}.{name}")


# Layer norm, RMS norm -------------------------------------------------------------------------------------------------


def _row_norm(writer: Writer, x: Node, count: int, eps: Node, centred: bool) -> Node:
    rank = len(writer.shape(x))
    dims = tuple(range(rank - count, rank))
    if centred:
        x = call("sub", x, reduce("mean", x, dims, True))
    spread = call("rsqrt", call("add", reduce("mean", call("square", x), dims, True), eps))
    return call("mul", x, spread)


def _affine(value: Node, weight: Node | None, bias: Node | None) -> Node:
    value = call("mul", value, weight) if weight else value
    return call("add", value, bias) if bias else value


def _count(value: object) -> int:
    return len(value) if isinstance(value, (tuple, list)) else 1


@rule("layernorm")
def _layer_norm(writer: Writer, node: Node) -> Node:
    count = _count(writer.value(f"{node.text}.normalized_shape"))
    value = _row_norm(writer, node.args[0], count, number(f"{node.text}.eps"), True)
    return _affine(value, _weight(writer, node, "weight"), _weight(writer, node, "bias"))


@rule("rmsnorm")
def _rms_norm(writer: Writer, node: Node) -> Node:
    path = node.text.removeprefix("self.")
    count = _count(writer.value(f"{node.text}.normalized_shape"))
    eps = number(f"{node.text}.eps" if writer.facts.attributes.get(f"{path}.eps") is not None else "1.1920929e-07")
    return _affine(_row_norm(writer, node.args[0], count, eps, False), _weight(writer, node, "weight"), None)


@rule("layer_norm")
def _functional_layer_norm(writer: Writer, node: Node) -> Node:
    count = _count(writer.option(node, "normalized_shape"))
    value = _row_norm(writer, node.args[0], count, number(node.option("eps") or "1e-05"), True)
    return _affine(value, _given(node.args, 1), _given(node.args, 2))


@rule("rms_norm")
def _functional_rms_norm(writer: Writer, node: Node) -> Node:
    count = _count(writer.option(node, "normalized_shape"))
    eps = node.option("eps")
    eps = "1.1920929e-07" if eps in _NONE else eps
    return _affine(_row_norm(writer, node.args[0], count, number(eps), False), _given(node.args, 1), None)


# Batch, instance, group norm ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """The Python texts that the kernel needs of a layer; None where it has no weight."""

    weight: str | None
    bias: str | None
    eps: str
    groups: str = ""


def _per_channel(writer: Writer, x: Node, vector: Node) -> Node:
    """Returns a vector of one number a channel, in a shape that broadcasts along dimension 1."""
    rank = len(writer.shape(x))
    return Node("reshape", (vector,), options=(("shape", repr((-1,) + (1,) * (rank - 2))),)) if rank > 2 else vector


def _with_statistics(
    writer: Writer, x: Node, mean: Node, variance: Node, weight: Node | None, bias: Node | None, eps: str
) -> Node:
    """Normalises by given statistics, elementwise."""
    mean, variance = _per_channel(writer, x, mean), _per_channel(writer, x, variance)
    scale = call("rsqrt", call("add", variance, number(eps)))
    value = call("mul", call("sub", x, mean), scale)
    w = _per_channel(writer, x, weight) if weight else None
    return _affine(value, w, _per_channel(writer, x, bias) if bias else None)


@rule("batchnorm")
def _batch_norm_layer(writer: Writer, node: Node) -> Node:
    path = node.text.removeprefix("self.")
    evaluated = writer.facts.attributes.get(f"{path}.training") is False
    if not evaluated or writer.facts.attributes.get(f"{path}.track_running_stats") is False:
        return node
    mean, variance = (Node("tensor", text=f"{node.text}.{n}") for n in ("running_mean", "running_var"))
    weight, bias = _weight(writer, node, "weight"), _weight(writer, node, "bias")
    return _with_statistics(writer, node.args[0], mean, variance, weight, bias, f"{node.text}.eps")


@rule("batch_norm")
def _functional_batch_norm(writer: Writer, node: Node) -> Node:
    mean, variance, weight, bias = (_given(node.args, i) for i in range(1, 5))
    eps = node.option("eps") or "1e-05"
    if mean is not None and variance is not None and not writer.option(node, "training", "False"):
        return _with_statistics(writer, node.args[0], mean, variance, weight, bias, eps)
    return _called("batchnorm", node.args[0], weight, bias, eps)


@rule("instance_norm")
def _functional_instance_norm(writer: Writer, node: Node) -> Node:
    weight, bias = _given(node.args, 3), _given(node.args, 4)
    return _called("instancenorm", node.args[0], weight, bias, node.option("eps") or "1e-05")


@rule("group_norm")
def _functional_group_norm(writer: Writer, node: Node) -> Node:
    weight, bias = _given(node.args, 1), _given(node.args, 2)
    return _called("groupnorm", node.args[0], weight, bias, node.option("eps") or "1e-05", node.option("num_groups"))


def _called(op: str, x: Node, weight: Node | None, bias: Node | None, eps: str, groups: str = "") -> Node:
    none = number("None")
    return Node(op, (x, weight or none, bias or none), options=(("eps", eps), ("groups", groups)))


def _parts(writer: Writer, node: Node) -> Parts:
    if node.text:
        weight, bias = _weight(writer, node, "weight"), _weight(writer, node, "bias")
        if node.op == "instancenorm" and not writer.facts.attributes.get(f"{node.text[5:]}.affine"):
            weight = bias = None
        eps, groups = f"{node.text}.eps", f"{node.text}.num_groups"
    else:
        weight, bias = _given(node.args, 1), _given(node.args, 2)
        eps, groups = node.option("eps"), node.option("groups")
    return Parts(writer.tensor(weight) if weight else None, writer.tensor(bias) if bias else None, eps, groups)


NORM_WAYS: dict[str, Callable[[Writer, Node, Parts, Epilogue], str]] = {}
"""Value of `Schedule.memory` -> the function that takes the place of `normalisation`."""
_TITLES = {"batchnorm": "batch_norm", "instancenorm": "instance_norm", "groupnorm": "group_norm"}


@anchor("batchnorm", "instancenorm", "groupnorm")
def normalisation(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Adds a kernel with one block a row of equal statistics: mean, then squares around it, then the result."""
    shape, parts, block = writer.shape(node), _parts(writer, node), writer.schedule.block
    if way := NORM_WAYS.get(writer.schedule.memory):
        return way(writer, node, parts, epilogue)
    x = writer.tensor(node.args[0])
    y = writer.result()
    spatial = len(shape) > 2
    inner = ", int inner" if spatial else ""
    over = " / inner" if spatial else ""
    head = "    long long base = (long long)blockIdx.x * n;"
    place, channel = "base + j", "    int c = blockIdx.x % channels;"
    late = ""
    if node.op == "batchnorm":
        head, channel = "", "    int c = blockIdx.x;"
        place = (
            "((long long)(j / inner) * channels + c) * inner + j % inner" if spatial else "(long long)j * channels + c"
        )
    elif node.op == "groupnorm":
        channel, late = "", f"        int c = i{over} % channels;\n"
    affine = f"(x[i] - mean) * scale{' * weight[c]' if parts.weight else ''}{' + bias[c]' if parts.bias else ''}"
    needs_c = bool(parts.weight or parts.bias or epilogue)
    final = epilogue.store("y", "acc", "i", " " * 8, {1: "c"} if needs_c else {}, _TAKEN)
    function = block_function(writer, "sum")
    name = writer.kernel_name(_TITLES[node.op])
    loop = f"for (int j = threadIdx.x; j < n; j += {block})"
    pointers = "".join(f"const float* {n}, " for n, t in (("weight", parts.weight), ("bias", parts.bias)) if t)
    start = "\n".join(line for line in (channel if needs_c or node.op == "batchnorm" else "", head) if line)
    parameters = f"const float* x, {pointers}float* y, int n, int channels{inner}, float eps{epilogue.parameters}"
    writer.kernel(f"""
extern "C" __global__ void {name}({parameters}) {{
{start}
    float mean = 0.0f;
    {loop} mean += x[{place}];
    mean = {function}(mean) / n;
    float total = 0.0f;
    {loop} {{
        float v = x[{place}] - mean;
        total += v * v;
    }}
    float scale = rsqrtf({function}(total) / n + eps);
    {loop} {{
        long long i = {place};
{late if needs_c else ""}        float acc = {affine};
{final}
    }}
}}
""")
    rows = f"{x}.shape[0] * {parts.groups if node.op == 'groupnorm' else f'{x}.shape[1]'}"
    rows = f"{x}.shape[1]" if node.op == "batchnorm" else rows
    count = writer.local("rows")
    writer.line(f"{count} = {rows}")
    writer.line(f"{y} = torch.empty_like({x})")
    size = " * ".join(f"{x}.shape[{d}]" for d in range(2, len(shape)))
    given = (
        f"{x}, {''.join(f'{t}, ' for t in (parts.weight, parts.bias) if t)}{y}, {x}.numel() // {count}, {x}.shape[1]"
    )
    given += f", {size}" if spatial else ""
    writer.launch(name, count, f"{given}, {parts.eps}{epilogue.arguments(y)}")
    return y


_TAKEN = ("x", "weight", "bias", "n", "channels", "inner", "eps", "c", "base", "mean", "total", "scale", "v", "j")


# Local response norm --------------------------------------------------------------------------------------------------


@anchor("local_response_norm")
def local_response(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Scales each element by the squares of its neighbours among the channels; missing neighbours count as zero."""
    x, y = writer.tensor(node.args[0]), writer.result()
    body = """
int s = i % S, c = i / S % C;
float squares = 0.0f;
for (int k = c - size / 2; k <= c + (size - 1) / 2; ++k) {
    if (k < 0 || k >= C) continue;
    float v = x[i + (long long)(k - c) * S];
    squares += v * v;
}
float acc = x[i] / powf(base + alpha * squares / size, beta);
""".strip()
    parameters = (
        "const float* x, float* y, long long total, int C, int S, int size, float alpha, float beta, float base"
    )
    name = sampled(writer, "local_response_norm", body, parameters, epilogue, {1: "c"})
    template = f"""
C, S = @x.shape[1], @x[0, 0].numel()
@y = torch.empty_like(@x)
kernels.@name[{grid("@y", writer.schedule.block)}](@x, @y, @y.numel(), C, S, @size, @alpha, @beta, @base@last)
"""
    size, base = node.option("size"), node.option("k") or "1.0"
    given = {"alpha": node.option("alpha") or "0.0001", "beta": node.option("beta") or "0.75", "base": base}
    floats = {k: f"float({v})" for k, v in given.items()}
    add_lines(writer, template, x=x, y=y, name=name, size=size, last=epilogue.arguments(y), **floats)
    return y
