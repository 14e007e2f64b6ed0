"""Attention of 16-bit operands in one pass on tensor cores (`device/kernelwright/attention.cuh`).

Queries, keys and values are read through their strides. A mask is a float32 tensor that is added to the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.solutions.families.half_products import TYPES
from kernelwright.solutions.families.products import operand
from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels.host import add_kernel, add_lines
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node


@dataclass(frozen=True)
class AttentionShape:
    """A block's keys and its pipeline stages; it has 128 queries."""

    keys: int
    stages: int

    def shared(self, size: int) -> int:
        """Returns bytes of dynamic shared memory for heads of `size` (`kw::Attention::BYTES`)."""
        width = -(-size // 64) * 64
        return 2 * width * (128 + 2 * self.stages * self.keys) + 1024


def tiling(size: int) -> AttentionShape:
    """Returns the tiling for heads of `size`: larger heads leave registers and shared memory for fewer keys."""
    return AttentionShape(128, 2) if size <= 128 else AttentionShape(64, 2)


_KERNEL = """
#include <kernelwright/attention.cuh>
extern "C" __global__ void __launch_bounds__(384, 1) @name(@parameters) {
    long long tiles = (M + 127) / 128, head = blockIdx.x / tiles, z = head / H, h = head % H, hk = h / (H / HK);
    long long tile = tiles - 1 - blockIdx.x % tiles;  // rows that see most keys start first
    auto store = [&](long long m, int d, float acc) {
        @stored
    };
    @masked
    kw::Attention<@kind, @D, @keys, @stages, @causal>::run(
        {q + z * qz + h * qh, qm, qd}, {k + z * kz + hk * kh, km, kd}, {v + z * vz + hk * vh, vm, vd},
        tile, M, N, scale, masked, store);
}
"""
_MASK = """
kw::Mask masked([&](long long m, long long n, float score) {
    return score + mask[z * maskz + h * maskh + m * maskm + n * maskn];
});
"""
_HOST = """
q, k, v = @q, @k, @v
H, HK, M, N, D = q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3]
@mask_line
@y = torch.empty(@shape, device=q.device)
kernels.@name[(M + 127) // 128 * q.shape[0] * H, 384, @shared](
    q, k, v, @y, M, N, H, HK, @scale, *q.stride(), *k.stride(), *v.stride()@mask_arguments@more)
"""


@shape_rule("attention")
def attention_shape(writer: Writer, node: Node) -> Shape:
    """Returns the queries' shape; keys and values have heads of the same size."""
    return writer.shape(node.args[0])


@anchor("attention")
def attention(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Lowers softmax(scale q k^T + mask) v; a block has 128 queries of one head."""
    shape = writer.shape(node)
    half, size, rank = writer.floating(node.args[0]), shape[-1], len(shape)
    texts = [_four(operand(writer, x, half).text, rank) for x in node.args[:3]]
    masks = [_four(writer.tensor(x), len(writer.shape(x))) for x in node.args[3:]]
    kind = TYPES[half]
    parameters = "".join(f"const {kind}* {x}, " for x in "qkv") + "float* y, int M, int N, int H, int HK, float scale"
    parameters += "".join(f", long long {x}{axis}" for x in "qkv" for axis in "zhmd")
    if masks:
        parameters += ", const float* mask" + "".join(f", long long mask{axis}" for axis in "zhmn")
    shaped = tiling(size)
    text = tiles.put(
        _KERNEL,
        masked=_MASK if masks else "kw::NoMask masked;",
        kind=kind,
        D=str(size),
        keys=str(shaped.keys),
        stages=str(shaped.stages),
        causal="true" if node.option("causal") else "false",
    )
    axes = {rank - 2: "m", rank - 1: "d", **({0: "z", 1: "h"} if rank == 4 else {})}
    text = tiles.fuse(text, parameters, epilogue, f"(head * M + m) * {size} + d", axes)
    name, y = add_kernel(writer, "attention", text), writer.result()
    lead = {2: "M, D", 3: "q.shape[0], M, D", 4: "q.shape[0], H, M, D"}
    host = _HOST.replace("@mask_line\n", "mask = @mask.expand(q.shape[0], H, M, N)\n" if masks else "")
    host = host.replace("@mask_arguments", ", mask, *mask.stride()" if masks else "")
    marks = {"q": texts[0], "k": texts[1], "v": texts[2], **({"mask": masks[0]} if masks else {})}
    marks |= {"shape": lead[rank], "shared": str(shaped.shared(size))}
    marks["scale"] = f"float({node.option('scale')})" if node.option("scale") else "D**-0.5"
    add_lines(writer, host, y=y, name=name, more=epilogue.arguments(y), **marks)
    return y


def _four(text: str, rank: int) -> str:
    """Returns a view of four dimensions: batch, head, row, element."""
    return {2: f"{text}[None, None]", 3: f"{text}[:, None]"}.get(rank, text)
