"""The words of generated tasks: names of tensors, extents and attributes, and the sentences of docstrings.

This text does not change a task's computation. The sentences are our own.
"""

from __future__ import annotations

EXTENTS: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size", "batch_size", "batch", "B", "bs", "n_batch", "num_samples", "N_batch", "BATCH"),
    "rows": ("rows", "num_rows", "M", "n_rows", "R", "num_tokens", "height"),
    "cols": ("cols", "num_cols", "N", "n_cols", "columns", "row_length", "num_columns"),
    "features": (
        "features",
        "dim",
        "num_features",
        "hidden_size",
        "hidden_dim",
        "D",
        "feature_dim",
        "d_model",
        "width",
    ),
    "in_features": ("in_features", "input_size", "in_dim", "d_in", "input_dim", "K_in", "n_in"),
    "out_features": ("out_features", "output_size", "out_dim", "d_out", "output_dim", "units", "n_out"),
    "hidden": ("hidden_size", "hidden_dim", "hidden", "d_ff", "inner_dim", "mlp_dim", "intermediate_size"),
    "in_channels": ("in_channels", "in_channels", "c_in", "channels_in", "C_in", "input_channels", "in_ch"),
    "out_channels": ("out_channels", "out_channels", "c_out", "channels_out", "C_out", "num_filters", "out_ch"),
    "channels": ("channels", "num_channels", "C", "features", "num_features", "n_channels", "in_channels"),
    "length": ("length", "seq_len", "sequence_length", "L", "T", "input_length", "num_steps", "n_points"),
    "depth": ("depth", "D", "in_depth", "dim_d", "frames", "dim1"),
    "height": ("height", "H", "h", "image_height", "dim_h", "in_height", "dim2"),
    "width": ("width", "W", "w", "image_width", "dim_w", "in_width", "dim3"),
    "extent": ("dim1", "dim2", "dim3", "d0", "d1", "d2", "size_a", "size_b", "size_c", "n1", "n2", "inner", "outer"),
    "M": ("M", "m", "rows_a", "m_dim", "num_rows", "n_tokens", "M"),
    "N": ("N", "n", "cols_b", "n_dim", "num_cols", "n_out", "N"),
    "K": ("K", "k", "inner_dim", "k_dim", "contract_dim", "shared_dim", "K"),
    "square": ("N", "n", "size", "matrix_size", "dim", "side", "order"),
    "classes": ("num_classes", "n_classes", "C", "vocab_size", "num_labels", "classes"),
    "vocab": ("vocab_size", "num_embeddings", "n_tokens", "V", "table_size"),
    "heads": ("num_heads", "n_heads", "heads", "H", "nhead"),
    "head_dim": ("head_dim", "d_head", "head_size", "d_k", "dim_per_head"),
    "seq": ("seq_len", "sequence_length", "T", "S", "context_length", "n_positions"),
    "count": ("count", "num_indices", "n_selected", "num_picked", "k_rows"),
    "groups": ("num_groups", "groups", "n_groups", "G"),
}
"""Role of an extent -> names that people give it."""

INPUTS: dict[str, tuple[str, ...]] = {
    "x": ("x", "x", "x", "x", "x", "input", "inputs", "inp", "data", "features_in", "tensor", "t", "signal", "X"),
    "image": ("x", "x", "x", "x", "input", "images", "feature_map", "inp", "img", "activations"),
    "sequence": ("x", "x", "x", "input", "signal", "seq", "tokens", "inp", "series"),
    "volume": ("x", "x", "x", "input", "volume", "voxels", "inp", "clip"),
    "A": ("A", "A", "a", "lhs", "left", "mat1", "X", "first"),
    "B": ("B", "B", "b", "rhs", "right", "mat2", "Y", "second"),
    "other": ("y", "y", "other", "z", "residual", "skip", "rhs", "b", "second", "v"),
    "third": ("z", "w", "third", "c", "addend", "u"),
    "vector": ("v", "x", "vec", "vector", "b", "B"),
    "bias_in": ("bias", "b", "offset", "shift", "delta"),
    "scale_in": ("scale", "s", "gamma", "weight", "gain"),
    "scalar": ("s", "alpha", "scale", "factor", "value", "scalar", "c", "coef"),
    "mask": ("mask", "mask", "keep", "m", "valid", "attn_mask", "selector"),
    "predictions": ("predictions", "preds", "pred", "y_pred", "input", "outputs", "logits", "estimate"),
    "logits": ("logits", "predictions", "scores", "x", "pred", "outputs"),
    "targets": ("targets", "target", "labels", "y_true", "y", "ground_truth", "truth"),
    "sign": ("y", "labels", "sign", "order", "direction", "which"),
    "anchor": ("anchor", "a", "anchors", "query"),
    "positive": ("positive", "pos", "p", "positives"),
    "negative": ("negative", "neg", "n", "negatives"),
    "index": ("indices", "index", "idx", "ids", "positions", "token_ids", "input_ids"),
    "q": ("q", "query", "Q", "queries"),
    "k": ("k", "key", "K", "keys"),
    "v": ("v", "value", "V", "values"),
    "gate": ("gate", "g", "up", "gating"),
    "diagonal": ("A", "d", "diag", "a", "diagonal", "scales"),
}
"""Role of an input -> names of forward's argument."""

LOCALS: dict[str, tuple[str, ...]] = {
    "value": ("out", "y", "h", "z", "result", "output", "res", "t", "val", "tmp"),
    "conv": ("out", "conv_out", "features", "y", "h", "conv"),
    "linear": ("out", "h", "hidden", "proj", "y", "lin"),
    "activation": ("act", "activated", "h", "a", "out", "y"),
    "norm": ("normed", "normalized", "norm", "h", "out"),
    "pool": ("pooled", "p", "out", "pool_out"),
    "reduction": ("total", "reduced", "stat", "agg", "out", "s"),
    "softmax": ("probs", "weights", "attn", "p", "out"),
    "scores": ("scores", "attn_scores", "logits", "sim", "s"),
    "residual": ("residual", "identity", "shortcut", "skip", "x_orig", "original"),
    "mean": ("mean", "mu", "avg", "m", "centre"),
    "var": ("var", "variance", "sigma2", "v"),
    "gate": ("gate", "g", "gates", "gating"),
    "up": ("up", "value", "u", "content"),
    "difference": ("diff", "error", "delta", "err", "residuals"),
    "mask": ("mask", "keep", "m", "cond", "condition"),
    "shape": ("view", "flat", "reshaped", "perm"),
}
"""Kind of an intermediate value -> names of local variables."""

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "Conv": ("conv", "conv", "conv_layer", "layer", "c"),
    "ConvTranspose": ("conv_transpose", "deconv", "upconv", "conv_t", "transposed_conv"),
    "Linear": ("linear", "fc", "proj", "dense", "gemm", "lin", "matmul"),
    "Bilinear": ("bilinear", "form", "mix"),
    "Embedding": ("embedding", "embed", "emb", "table", "lookup"),
    "BatchNorm": ("bn", "batch_norm", "norm", "batchnorm"),
    "InstanceNorm": ("inorm", "instance_norm", "norm", "in_norm"),
    "GroupNorm": ("gn", "group_norm", "norm", "groupnorm"),
    "LayerNorm": ("ln", "layer_norm", "norm", "layernorm"),
    "RMSNorm": ("rms", "rms_norm", "norm", "rmsnorm"),
    "MaxPool": ("maxpool", "pool", "max_pool", "mp"),
    "AvgPool": ("avgpool", "pool", "avg_pool", "average_pool"),
    "AdaptiveAvgPool": ("pool", "global_pool", "adaptive_pool", "avgpool"),
    "AdaptiveMaxPool": ("pool", "adaptive_pool", "maxpool", "global_max"),
    "LPPool": ("pool", "lp_pool", "lppool"),
    "Loss": ("loss_fn", "criterion", "loss", "objective"),
    "Upsample": ("upsample", "up", "resize", "scale_up"),
    "Pad": ("pad", "padding_layer", "padder"),
    "Activation": ("act", "activation", "nonlinearity", "fn", "act_fn", "layer"),
    "bias": ("bias", "b", "offset", "shift", "extra_bias"),
    "weight": ("weight", "w", "W", "kernel", "matrix"),
    "scale": ("scale", "gamma", "gain", "multiplier", "alpha_param"),
}
"""Class of a module, or role of a parameter -> names of attributes."""

WORDS = tuple(
    (
        "amber anchor apple arch atlas band basin beam bell birch block bloom board bolt bond brick bridge brook "
        "brush cabin cable canal candle cedar chain chalk circle clay cliff clock cloud coast coral crane crest crown "
        "curve dawn delta dome drift drum dune eagle east echo edge elm ember fern field finch first flake flame "
        "fleet flint flow fold forge fort frame frost garden gate glade glass globe grain grove guide harbor hazel "
        "hill hinge hollow horn house iron ivory jade juniper kite lake lamp lane lark last latch leaf left lemon "
        "level light lily linen lodge loop lotus main maple marble marsh meadow mesa mill mint mirror moon moss nest "
        "net noble north oak ocean olive onyx opal orbit outer path pearl pebble pine pivot plain plate plum point "
        "pond port prism quartz quiet rail rain range raven reed reef ridge right ring river robin root rope rose "
        "sage sail salt sand second shade shelf shell shore side silk silver slate slope snow spark spring spruce "
        "stage star steel stem step stone storm stream summit table tail temple third thorn tide timber top tower "
        "track trail tree tulip tunnel upper vale valley vault vine violet walnut water wave west wheat wheel willow "
        "wind wing winter wood yard zinc"
    ).split()
)
"""Words unrelated to the named value."""
SYLLABLES = tuple(
    "ba be bo da do du fa fi fo ga go ka ke ki la lo lu ma mi mo na ne no pa po ra ri ro sa so ta ti va vo".split()
)
CONTAINERS = tuple("layers layers net blocks body stages modules_ ops seq branches stack".split())
"""Attributes that hold several layers."""
WEIGHTS = ("weight", "w", "kernel", "W", "filters", "bias", "b", "beta", "shift")
"""Names of a layer's weights in a model that holds them itself."""
LETTERS = "aaabbccddddeeeefffgghhiiijkkllllmmmnnnnoooppqrrrrssssttttuuvvwwxxyz"
"""Letters of random names."""
ENDINGS = tuple("1 2 3 _1 _2 _a _b _in _layer _module _op _fn _x 1d 2d 3d _3d".split())
"""Suffixes of usual names."""
SUBJECTS = (
    "Model", "A model", "Module", "A small module", "Reference module", "Reference implementation", "Baseline module",
    "A layer", "Toy network", "A network stage", "Small network", "PyTorch module", "Benchmark module", "A block",
    "Minimal example", "Compact model", "Test module", "Standalone operator", "Eager-mode model", "Sub-network",
)  # fmt: skip
VERBS = (
    "that applies {}", "that computes {}", "that runs {}", "performing {}", "computing {}", "which applies {}",
    "which performs {}", "for {}", "that evaluates {}", "wrapping {}", "made of {}", "that carries out {}",
    "consisting of {}", "around {}",
)  # fmt: skip
CONSTANT_REMARKS = ("fixed", "per sample", "large enough to be timed", "any value works", "see Model", "elements")
UNUSED_CONSTANTS = (
    ("dim", "1"), ("eps", "1e-5"), ("num_heads", "8"), ("dropout", "0.0"), ("seed", "0"), ("num_layers", "2"),
    ("n_warmup", "5"), ("scale", "1.0"),
)  # fmt: skip
"""Constants that some files define and never read."""
IMPERATIVES = (
    "Applies {}.", "Computes {}.", "Performs {}.", "Runs {}.", "{} over the input.", "Evaluates {}.", "{}.",
    "Carries out {}.", "Returns the result of {}.", "Forward pass: {}.", "Do {}.", "Apply {}", "Compute {}",
)  # fmt: skip
JOINERS = (", then ", " followed by ", ", ", " -> ", " and then ", " + ", "; ")
HEADINGS = ("Args:", "Args:", "Args:", "Parameters:", "Arguments:", "Inputs:")
RETURN_HEADINGS = ("Returns:", "Returns:", "Returns:", "Return:", "Output:")
CONSTANT_COMMENTS = (
    "# Sizes", "# sizes of the benchmark", "# problem size", "# configuration", "# Shapes", "# Workload",
    "# Hyperparameters", "# test sizes", "# --- workload ---", "# dimensions", "# Benchmark configuration",
    "# Settings",
)  # fmt: skip
NO_INIT_COMMENTS = (
    "  # nothing to pass", "  # no arguments", "  # the constructor takes nothing", "  # none", "  # empty",
    "  # no constructor arguments", "  # not needed here",
)  # fmt: skip
NOTES = (
    "Used as a reference for kernel tests.", "All tensors are contiguous.", "The result has the dtype of the input.",
    "Written for clarity, not for speed.", "Nothing here depends on the batch size.", "Inference only.",
    "Shapes are fixed per run.", "Runs in eager mode.", "No state is kept between calls.", "See the shapes below.",
    "The sizes are typical of medium networks.", "Expects a floating-point input.", "Meant for GPU timing.",
    "Each call allocates its output.", "A candidate for operator fusion.", "Memory bound on most devices.",
)  # fmt: skip
LINE_COMMENTS = (
    "# step {n}", "# {what}", "# apply {what}", "# {what} here", "# now {what}", "# next: {what}",
)  # fmt: skip
INPUT_NOTES = (
    "Input tensor", "the input", "Input of the operator", "Source tensor", "A tensor", "Values to process",
    "Input data",
    "Tensor to transform", "dense input",
)  # fmt: skip
OUTPUT_NOTES = (
    "Output tensor", "The result", "Result tensor", "the output", "Computed values", "A new tensor",
    "Transformed tensor",
)  # fmt: skip
ARGUMENT_NOTES: dict[str, tuple[str, ...]] = {
    "kernel_size": ("Extent of the window", "kernel size", "Size of the filter window", "Window per axis"),
    "stride": ("Step of the window", "stride", "Hop between windows", "Stride of the window"),
    "padding": ("Zeros added on each side", "padding", "Border padding", "Implicit padding on both sides"),
    "dilation": ("Spacing of the taps", "dilation", "Gap between kernel elements", "Dilation factor"),
    "groups": ("Number of channel groups", "groups", "Connection groups"),
    "bias": ("Whether to learn an additive bias", "use a bias", "Adds a bias if True"),
    "output_padding": ("Extra size on one side of the output", "output padding"),
    "dim": ("Axis to work along", "dimension", "The axis that is reduced or scanned", "dim of the operation"),
    "eps": ("Small constant for stability", "epsilon", "Added for numerical stability"),
    "in_channels": ("Channels of the input", "input channels", "Number of incoming channels"),
    "out_channels": ("Channels of the output", "output channels", "Number of filters"),
    "in_features": ("Width of the input", "input features"),
    "out_features": ("Width of the output", "output features"),
    "keepdim": ("Keep the reduced axis", "keepdim flag"),
}
SYNONYMS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "reduce_dim", "along", "which_dim", "over"),
    "groups": ("num_groups", "n_groups", "conv_groups"),
    "num_groups": ("groups", "n_groups", "norm_groups"),
    "kernel_size": ("kernel_size_2", "ksize", "window"),
    "stride": ("stride_2", "step"),
    "padding": ("padding_2", "pad"),
    "scale": ("scale_factor", "scaling", "multiplier"),
    "eps": ("epsilon", "eps_norm"),
}
"""Alternative names of hyperparameters, where the usual one is taken."""
HYPERPARAMETERS = tuple(
    (
        "add_value affine approximate beta bias_value cap ceiling clamp_max clamp_min constant count_include_pad "
        "denominator div_value divisor exponent fill floor_value high is_causal lambd level low lower lower_bound "
        "margin max_val max_value min_val min_value momentum negative_slope norm_type output_size power repeats "
        "scaling_factor shifts slope sub_value subtract_value threshold times top upper upper_bound"
    ).split()
)
"""Further names of the operators' hyperparameters, besides those with `_d`, `_h` and `_w`."""
UNUSED_ARGUMENTS = (
    ("num_classes", "1000"), ("dropout", "0.0"), ("name", "'block'"), ("use_bias", "True"), ("version", "1"),
    ("training_mode", "False"), ("max_len", "512"), ("temperature", "1.0"), ("num_layers", "1"), ("debug", "False"),
    ("init_std", "0.02"), ("groups_hint", "1"), ("return_indices", "False"), ("ceil", "False"),
)  # fmt: skip
"""Arguments that some constructors take and never use: name and value."""
