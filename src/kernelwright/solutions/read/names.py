"""Maps torch's functions, methods and modules to operators, with the order of their arguments."""

from __future__ import annotations

from kernelwright.solutions.kernels.operators import COMPARISONS, ELEMENTWISE, LOGIC
from kernelwright.solutions.read import shaped_names

_SAME = """
clamp where softmax log_softmax softmin sum mean prod max min amax amin argmax argmin logsumexp norm cumsum cumprod
logcumsumexp cummax cummin matmul mm bmm flip mse_loss l1_loss smooth_l1_loss huber_loss linear var std kl_div normalize
roll gather index_select masked_fill scatter scatter_add index_add bincount unfold diagonal cdist local_response_norm
cross_entropy nll_loss binary_cross_entropy
binary_cross_entropy_with_logits
cosine_similarity cosine_embedding_loss triplet_margin_loss margin_ranking_loss hinge_embedding_loss soft_margin_loss
poisson_nll_loss gaussian_nll_loss pairwise_distance layer_norm group_norm batch_norm instance_norm rms_norm glu pad
tril triu cat stack chunk split unbind aminmax permute transpose reshape flatten unflatten unsqueeze squeeze expand
expand_as repeat movedim narrow select repeat_interleave count_nonzero var_mean std_mean dropout one_hot diff
any all rsub rrelu isnan isinf isfinite
"""
FUNCTIONS = {
    **{name: name for name in (*_SAME.split(), *ELEMENTWISE, *COMPARISONS, *LOGIC)},
    **shaped_names.FUNCTIONS,
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "negative": "neg",
    "clip": "clamp",
    "absolute": "abs",
    "swish": "silu",
    "expit": "sigmoid",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "eq": "eq",
    "not_equal": "ne",
    "arctan": "atan",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "arcsinh": "asinh",
    "arcsin": "asin",
    "arccos": "acos",
    "fix": "trunc",
    "concat": "cat",
    "concatenate": "cat",
    "view": "reshape",
    "view_as": "reshape_as",
    "reshape_as": "reshape_as",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "moveaxis": "movedim",
    "tile": "repeat",
    "linalg.norm": "vector_norm",
    "linalg.vector_norm": "vector_norm",
    "linalg.matrix_norm": "vector_norm",
    "special.expit": "sigmoid",
    "special.exp2": "exp2",
    "special.log1p": "log1p",
    "special.expm1": "expm1",
    "special.logsumexp": "logsumexp",
    "special.softmax": "softmax",
    "special.log_softmax": "log_softmax",
    "special.erf": "erf",
    "special.sinc": "sinc",
    "special.erfinv": "erfinv",
    "special.gammaln": "lgamma",
    "special.i0": "i0",
    "special.xlogy": "xlogy",
    "functional.unfold": "im2col",
    "F.unfold": "im2col",
    "special.logit": "logit",
    "clamp_min": "maximum",
    "clamp_max": "minimum",
    "fmin": "minimum",
    "fmax": "maximum",
}
"""Function or method name -> operator. A trailing underscore (in place) is removed first."""

_LOSS = ("size_average", "reduce", "reduction")
_BINARY = """pow add sub mul div minimum maximum remainder fmod floor_divide atan2 hypot matmul mm bmm logical_and
logical_or logical_xor gt ge lt le eq ne expand_as reshape_as copysign heaviside xlogy logaddexp rsub"""
ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("sum", "mean", "prod", "max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "any", "all"),
        ("dim", "keepdim"),
    ),
    **dict.fromkeys(("softmax", "log_softmax", "softmin"), ("dim", "_stacklevel", "dtype")),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "glu", "unsqueeze", "squeeze"), ("dim",)),
    **dict.fromkeys(_BINARY.split(), ("*other",)),
    "logsumexp": ("dim", "keepdim"),
    "norm": ("p", "dim", "keepdim"),
    "vector_norm": ("ord", "dim", "keepdim"),
    "normalize": ("p", "dim", "eps"),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), ("dim", "unbiased", "keepdim")),
    "count_nonzero": ("dim",),
    "diff": ("n", "dim"),
    "logit": ("eps",),
    "rrelu": ("lower", "upper", "training"),
    "im2col": ("kernel_size", "dilation", "padding", "stride"),
    "leaky_relu": ("negative_slope",),
    "elu": ("alpha",),
    "celu": ("alpha",),
    "hardtanh": ("min_val", "max_val"),
    "hardshrink": ("lambd",),
    "softshrink": ("lambd",),
    "threshold": ("threshold", "value"),
    "clamp": ("min", "max"),
    "softplus": ("beta", "threshold"),
    "gelu": ("approximate",),
    "prelu": ("*weight",),
    "nan_to_num": ("nan",),
    "where": ("*input", "*other"),
    "masked_fill": ("*mask", "*value"),
    "lerp": ("*end", "*weight"),
    "addcmul": ("*tensor1", "*tensor2"),
    "addcdiv": ("*tensor1", "*tensor2"),
    "mse_loss": ("*target", *_LOSS),
    "l1_loss": ("*target", *_LOSS),
    "smooth_l1_loss": ("*target", *_LOSS, "beta"),
    "huber_loss": ("*target", "reduction", "delta"),
    "kl_div": ("*target", *_LOSS, "log_target"),
    "binary_cross_entropy": ("*target", "*weight", *_LOSS),
    "binary_cross_entropy_with_logits": ("*target", "*weight", *_LOSS, "pos_weight"),
    "soft_margin_loss": ("*target", *_LOSS),
    "poisson_nll_loss": ("*target", "log_input", "full", "size_average", "eps", "reduce", "reduction"),
    "gaussian_nll_loss": ("*target", "*var", "full", "eps", "reduction"),
    "hinge_embedding_loss": ("*target", "margin", *_LOSS),
    "margin_ranking_loss": ("*input2", "*target", "margin", *_LOSS),
    "cosine_embedding_loss": ("*input2", "*target", "margin", *_LOSS),
    "cosine_similarity": ("*x2", "dim", "eps"),
    "pairwise_distance": ("*x2", "p", "eps", "keepdim"),
    "triplet_margin_loss": ("*positive", "*negative", "margin", "p", "eps", "swap", *_LOSS),
    "cross_entropy": ("*target", "*weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
    "nll_loss": ("*target", "*weight", "size_average", "ignore_index", "reduce", "reduction"),
    "layer_norm": ("normalized_shape", "*weight", "*bias", "eps"),
    "rms_norm": ("normalized_shape", "*weight", "eps"),
    "group_norm": ("num_groups", "*weight", "*bias", "eps"),
    "batch_norm": ("*running_mean", "*running_var", "*weight", "*bias", "training", "momentum", "eps"),
    "instance_norm": ("*running_mean", "*running_var", "*weight", "*bias", "use_input_stats", "momentum", "eps"),
    "linear": ("*weight", "*bias"),
    "gather": ("dim", "*index", "sparse_grad"),
    "index_select": ("dim", "*index"),
    "roll": ("shifts", "dims"),
    "repeat_interleave": ("repeats", "dim"),
    "pad": ("pad", "mode", "value"),
    "tril": ("diagonal",),
    "triu": ("diagonal",),
    "cat": ("dim",),
    "stack": ("dim",),
    "chunk": ("chunks", "dim"),
    "split": ("split_size", "dim"),
    "unbind": ("dim",),
    "transpose": ("dim0", "dim1"),
    "flatten": ("start_dim", "end_dim"),
    "unflatten": ("dim", "sizes"),
    "movedim": ("source", "destination"),
    "narrow": ("dim", "start", "length"),
    "select": ("dim", "index"),
    "dropout": ("p", "training"),
    "one_hot": ("num_classes",),
    "scatter": ("dim", "*index", "*src"),
    **dict.fromkeys(("scatter_add", "index_add"), ("dim", "*index", "*source")),
    "bincount": ("*weights", "minlength"),
    "unfold": ("dim", "size", "step"),
    "diagonal": ("offset", "dim1", "dim2"),
    "cdist": ("*x2", "p"),
    "local_response_norm": ("size", "alpha", "beta", "k"),
    **{
        op: ("*",) * (shaped_names.TENSOR_ARGUMENTS.get(op, 1) - 1) + shaped_names.POSITIONAL.get(op, ())
        for op in {*shaped_names.POSITIONAL, *shaped_names.TENSOR_ARGUMENTS}
    },
}
"""Operator -> its arguments after the first tensor, in order; tensors have a star."""
SPREAD = {"permute": "dims", "flip": "dims", "reshape": "shape", "expand": "shape", "repeat": "shape"}
"""Operators that take their one argument as a tuple or as several numbers."""
TENSOR_KEYWORDS = frozenset("input other target weight bias mat2 vec vec2 exponent mask index key value query".split())
MORE_KEYWORDS = frozenset(
    "dtype correction rounding_mode compute_mode value alpha beta scale enable_gqa padding_idx layout".split()
)
"""Keywords that an operator may have besides its `ARGUMENTS`."""
RENAMED = {
    "axis": "dim",
    "dimension": "dim",
    "dims": "dim",
    "negative": "other",
    "size": "shape",
    "split_size_or_sections": "split_size",
}
"""Keyword -> the keyword of the same meaning."""

_SCALES = ("alpha",)
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ReLU": ("relu", ()),
    "ReLU6": ("relu6", ()),
    "Sigmoid": ("sigmoid", ()),
    "Tanh": ("tanh", ()),
    "GELU": ("gelu", ("approximate",)),
    "SiLU": ("silu", ()),
    "SELU": ("selu", ()),
    "ELU": ("elu", _SCALES),
    "CELU": ("celu", _SCALES),
    "Mish": ("mish", ()),
    "LeakyReLU": ("leaky_relu", ("negative_slope",)),
    "Hardtanh": ("hardtanh", ("min_val", "max_val")),
    "Hardsigmoid": ("hardsigmoid", ()),
    "Hardswish": ("hardswish", ()),
    "Hardshrink": ("hardshrink", ("lambd",)),
    "Softshrink": ("softshrink", ("lambd",)),
    "Threshold": ("threshold", ("threshold", "value")),
    "Softplus": ("softplus", ("beta", "threshold")),
    "Softsign": ("softsign", ()),
    "LogSigmoid": ("logsigmoid", ()),
    "Tanhshrink": ("tanhshrink", ()),
    "GLU": ("glu", ("dim",)),
    "PReLU": ("prelu", ()),
    "Softmax": ("softmax", ("dim",)),
    "LogSoftmax": ("log_softmax", ("dim",)),
    "Softmin": ("softmin", ("dim",)),
    "Softmax2d": ("softmax2d", ()),
    "Unfold": ("im2col", ("kernel_size", "dilation", "padding", "stride")),
    "MSELoss": ("mse_loss", ("reduction",)),
    "L1Loss": ("l1_loss", ("reduction",)),
    "SmoothL1Loss": ("smooth_l1_loss", ("reduction", "beta")),
    "HuberLoss": ("huber_loss", ("reduction", "delta")),
    "KLDivLoss": ("kl_div", ("reduction", "log_target")),
    "BCELoss": ("binary_cross_entropy", ("reduction",)),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", ("reduction",)),
    "SoftMarginLoss": ("soft_margin_loss", ("reduction",)),
    "PoissonNLLLoss": ("poisson_nll_loss", ("log_input", "full", "eps", "reduction")),
    "GaussianNLLLoss": ("gaussian_nll_loss", ("full", "eps", "reduction")),
    "HingeEmbeddingLoss": ("hinge_embedding_loss", ("margin", "reduction")),
    "MarginRankingLoss": ("margin_ranking_loss", ("margin", "reduction")),
    "CosineEmbeddingLoss": ("cosine_embedding_loss", ("margin", "reduction")),
    "CosineSimilarity": ("cosine_similarity", ("dim", "eps")),
    "PairwiseDistance": ("pairwise_distance", ("norm:p", "eps", "keepdim")),
    "TripletMarginLoss": ("triplet_margin_loss", ("margin", "p", "eps", "swap", "reduction")),
    "CrossEntropyLoss": ("cross_entropy", ("ignore_index", "reduction", "label_smoothing")),
    "NLLLoss": ("nll_loss", ("ignore_index", "reduction")),
    "Identity": ("identity", ()),
    "Dropout": ("dropout", ("p",)),
    "Flatten": ("flatten", ("start_dim", "end_dim")),
    "Unflatten": ("unflatten", ("dim", "unflattened_size:sizes")),
    **{f"{kind}Pad{d}d": ("pad", ()) for kind in ("Zero", "Constant", "Reflection", "Replication") for d in (1, 2, 3)},
    **{f"{kind}{d}d": (kind.lower(), ()) for kind in ("Conv", "ConvTranspose") for d in (1, 2, 3)},
    **{f"{kind}{d}d": (kind.lower(), ()) for kind in ("BatchNorm", "InstanceNorm") for d in (1, 2, 3)},
    "LayerNorm": ("layernorm", ()),
    "LocalResponseNorm": ("local_response_norm", ("size", "alpha", "beta", "k")),
    **{f"Dropout{d}d": ("dropout", ("p",)) for d in (1, 2, 3)},
    "GroupNorm": ("groupnorm", ()),
    "RMSNorm": ("rmsnorm", ()),
    "Linear": ("linear_module", ()),
    **shaped_names.MODULES,
}
"""Module class -> operator, and the attributes that are its options (`attribute:option` where they differ)."""

MODULE_ARGUMENTS = {
    "GELU": "approximate='none'",
    "ELU": "alpha=1.0 inplace=False",
    "CELU": "alpha=1.0 inplace=False",
    "LeakyReLU": "negative_slope=0.01 inplace=False",
    "Hardtanh": "min_val=-1.0 max_val=1.0 inplace=False",
    "Hardshrink": "lambd=0.5",
    "Softshrink": "lambd=0.5",
    "Threshold": "threshold value inplace=False",
    "Softplus": "beta=1.0 threshold=20.0",
    "GLU": "dim=-1",
    "PReLU": "num_parameters=1 init=0.25",
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmin"), "dim=None"),
    **dict.fromkeys(("MSELoss", "L1Loss", "SoftMarginLoss"), "size_average=None reduce=None reduction='mean'"),
    "SmoothL1Loss": "size_average=None reduce=None reduction='mean' beta=1.0",
    "HuberLoss": "reduction='mean' delta=1.0",
    "KLDivLoss": "size_average=None reduce=None reduction='mean' log_target=False",
    "BCELoss": "weight=None size_average=None reduce=None reduction='mean'",
    "BCEWithLogitsLoss": "weight=None size_average=None reduce=None reduction='mean' pos_weight=None",
    "PoissonNLLLoss": "log_input=True full=False size_average=None eps=1e-08 reduce=None reduction='mean'",
    "GaussianNLLLoss": "full=False eps=1e-06 reduction='mean'",
    "HingeEmbeddingLoss": "margin=1.0 size_average=None reduce=None reduction='mean'",
    "MarginRankingLoss": "margin=0.0 size_average=None reduce=None reduction='mean'",
    "CosineEmbeddingLoss": "margin=0.0 size_average=None reduce=None reduction='mean'",
    "CosineSimilarity": "dim=1 eps=1e-08",
    "PairwiseDistance": "p=2.0 eps=1e-06 keepdim=False",
    "TripletMarginLoss": "margin=1.0 p=2.0 eps=1e-06 swap=False size_average=None reduce=None reduction='mean'",
    "CrossEntropyLoss": (
        "weight=None size_average=None ignore_index=-100 reduce=None reduction='mean' label_smoothing=0.0"
    ),
    "NLLLoss": "weight=None size_average=None ignore_index=-100 reduce=None reduction='mean'",
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"), "p=0.5 inplace=False"),
    "LocalResponseNorm": "size alpha=0.0001 beta=0.75 k=1.0",
    "Unfold": "kernel_size dilation=1 padding=0 stride=1",
    "TransformerEncoderLayer": (
        "d_model nhead dim_feedforward=2048 dropout=0.1 activation='relu' layer_norm_eps=1e-05 batch_first=False "
        "norm_first=False bias=True"
    ),
    "Flatten": "start_dim=1 end_dim=-1",
    "Unflatten": "dim unflattened_size",
    **{f"ZeroPad{d}d": "padding" for d in (1, 2, 3)},
    **{f"ConstantPad{d}d": "padding value" for d in (1, 2, 3)},
    **{f"{kind}Pad{d}d": "padding" for kind in ("Reflection", "Replication") for d in (1, 2, 3)},
    **{f"BatchNorm{d}d": "num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True" for d in (1, 2, 3)},
    **{
        f"InstanceNorm{d}d": "num_features eps=1e-05 momentum=0.1 affine=False track_running_stats=False"
        for d in (1, 2, 3)
    },
    "LayerNorm": "normalized_shape eps=1e-05 elementwise_affine=True bias=True",
    "RMSNorm": "normalized_shape eps=None elementwise_affine=True",
    "GroupNorm": "num_groups num_channels eps=1e-05 affine=True",
    "Linear": "in_features out_features bias=True",
    "MultiheadAttention": (
        "embed_dim num_heads dropout=0.0 bias=True add_bias_kv=False add_zero_attn=False kdim=None vdim=None "
        "batch_first=False"
    ),
    **{
        f"Conv{d}d": "in_channels out_channels kernel_size stride=1 padding=0 dilation=1 groups=1 bias=True "
        "padding_mode='zeros'"
        for d in (1, 2, 3)
    },
    **{
        f"ConvTranspose{d}d": "in_channels out_channels kernel_size stride=1 padding=0 output_padding=0 groups=1 "
        "bias=True dilation=1"
        for d in (1, 2, 3)
    },
    **shaped_names.MODULE_ARGUMENTS,
}
"""Module class -> its constructor's parameters in order, with defaults."""
