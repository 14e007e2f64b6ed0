"""Maps torch's functions and modules of the shaped families to operators, with the order of their arguments."""

from __future__ import annotations

_RANKS = (1, 2, 3)
_CONVOLUTIONS = tuple(f"conv{d}d" for d in _RANKS)
_TRANSPOSED = tuple(f"conv_transpose{d}d" for d in _RANKS)
_MAX = tuple(f"max_pool{d}d" for d in _RANKS)
_AVG = tuple(f"avg_pool{d}d" for d in _RANKS)
_ADAPTIVE = tuple(f"adaptive_{kind}_pool{d}d" for kind in ("avg", "max") for d in _RANKS)
_LP = ("lp_pool1d", "lp_pool2d", "lp_pool3d")
_PLAIN: tuple[str, ...] = (
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "embedding",
    "interpolate",
    "einsum",
    "outer",
    "dot",
)
_PLAIN += ("scaled_dot_product_attention", "addmm", "baddbmm", "addmv", "mv", "diag", "inner", "bilinear")
_PLAIN += ("tril", "triu")

FUNCTIONS = {
    **{name: name for name in (*_CONVOLUTIONS, *_TRANSPOSED, *_MAX, *_AVG, *_ADAPTIVE, *_LP, *_PLAIN)},
    "ger": "outer",
    "vdot": "dot",
    "upsample": "interpolate",
}
"""Function or method name -> operator."""

POSITIONAL = {
    **dict.fromkeys(_CONVOLUTIONS, ("stride", "padding", "dilation", "groups")),
    **dict.fromkeys(_TRANSPOSED, ("stride", "padding", "output_padding", "groups", "dilation")),
    **dict.fromkeys(_MAX, ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")),
    **dict.fromkeys(_AVG, ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")),
    **dict.fromkeys(_ADAPTIVE, ("output_size",)),
    **dict.fromkeys(_LP, ("norm_type", "kernel_size", "stride", "ceil_mode")),
    **dict.fromkeys(("tril", "triu", "diag"), ("diagonal",)),
    "pixel_shuffle": ("upscale_factor",),
    "pixel_unshuffle": ("downscale_factor",),
    "channel_shuffle": ("groups",),
    "interpolate": ("size", "scale_factor", "mode", "align_corners"),
    "scaled_dot_product_attention": ("*attn_mask", "dropout_p", "is_causal"),
}
"""Operator -> its options in order, after the tensors."""

TENSOR_ARGUMENTS = {
    **dict.fromkeys((*_CONVOLUTIONS, *_TRANSPOSED), 3),
    **dict.fromkeys(("embedding", "outer", "dot", "mv", "inner"), 2),
    "bilinear": 4,
    **dict.fromkeys(("scaled_dot_product_attention", "addmm", "baddbmm", "addmv"), 3),
}
"""Operator -> the number of tensors that it takes first, where that is not one."""

_POOLED = ("kernel_size", "stride", "padding")
MODULES = {
    **{f"MaxPool{d}d": (f"max_pool{d}d", (*_POOLED, "dilation", "ceil_mode", "return_indices")) for d in _RANKS},
    **{f"AvgPool{d}d": (f"avg_pool{d}d", (*_POOLED, "ceil_mode", "count_include_pad")) for d in _RANKS},
    **{f"LPPool{d}d": (f"lp_pool{d}d", ("norm_type", "kernel_size", "stride", "ceil_mode")) for d in _RANKS},
    **{
        f"Adaptive{k}Pool{d}d": (f"adaptive_{k.lower()}_pool{d}d", ("output_size",))
        for k in ("Avg", "Max")
        for d in _RANKS
    },
    "PixelShuffle": ("pixel_shuffle", ("upscale_factor",)),
    "PixelUnshuffle": ("pixel_unshuffle", ("downscale_factor",)),
    "ChannelShuffle": ("channel_shuffle", ("groups",)),
    "Embedding": ("embedding", ()),
    "EmbeddingBag": ("embedding_bag", ()),
    "Bilinear": ("bilinear", ()),
    "Upsample": ("interpolate", ("size", "scale_factor", "mode", "align_corners")),
    "UpsamplingNearest2d": ("interpolate", ("size", "scale_factor", "mode")),
}
"""Module class -> operator, and the attributes that are its options."""

MODULE_ARGUMENTS = {
    **{
        f"MaxPool{d}d": "kernel_size stride=None padding=0 dilation=1 return_indices=False ceil_mode=False"
        for d in _RANKS
    },
    "AvgPool1d": "kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True",
    **{
        f"AvgPool{d}d": "kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None"
        for d in (2, 3)
    },
    **{f"LPPool{d}d": "norm_type kernel_size stride=None ceil_mode=False" for d in _RANKS},
    **{f"Adaptive{kind}Pool{d}d": "output_size" for kind in ("Avg", "Max") for d in _RANKS},
    "PixelShuffle": "upscale_factor",
    "PixelUnshuffle": "downscale_factor",
    "ChannelShuffle": "groups",
    "Embedding": "num_embeddings embedding_dim padding_idx=None max_norm=None",
    "EmbeddingBag": (
        "num_embeddings embedding_dim max_norm=None norm_type=2.0 scale_grad_by_freq=False mode='mean' sparse=False"
    ),
    "Bilinear": "in1_features in2_features out_features bias=True",
    "Upsample": "size=None scale_factor=None mode='nearest' align_corners=None",
    "UpsamplingNearest2d": "size=None scale_factor=None",
}
"""Module class -> its constructor's parameters in order, with defaults."""
