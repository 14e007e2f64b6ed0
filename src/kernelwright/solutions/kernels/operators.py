"""Elementwise operators in CUDA: one expression each, over float variables and literals.

`{0}`, `{1}`, … are operands (always a variable or a literal, so that naming one twice costs nothing), `{name}` options.
"""

from __future__ import annotations

ELEMENTWISE = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "pow": "powf({0}, {1})",
    "remainder": "{0} - floorf({0} / {1}) * {1}",
    "fmod": "fmodf({0}, {1})",
    "floor_divide": "floorf({0} / {1})",
    "atan2": "atan2f({0}, {1})",
    "hypot": "hypotf({0}, {1})",
    "neg": "-{0}",
    "minimum": "fminf({0}, {1})",
    "maximum": "fmaxf({0}, {1})",
    "lerp": "{0} + {2} * ({1} - {0})",
    "addcmul": "{0} + {value} * {1} * {2}",
    "addcdiv": "{0} + {value} * {1} / {2}",
    "relu": "fmaxf({0}, 0.0f)",
    "relu6": "fminf(fmaxf({0}, 0.0f), 6.0f)",
    "sigmoid": "1.0f / (1.0f + expf(-{0}))",
    "tanh": "tanhf({0})",
    "exp": "expf({0})",
    "exp2": "exp2f({0})",
    "log": "logf({0})",
    "log2": "log2f({0})",
    "log10": "log10f({0})",
    "sqrt": "sqrtf({0})",
    "rsqrt": "rsqrtf({0})",
    "abs": "fabsf({0})",
    "erf": "erff({0})",
    "erfc": "erfcf({0})",
    "sin": "sinf({0})",
    "cos": "cosf({0})",
    "tan": "tanf({0})",
    "asin": "asinf({0})",
    "acos": "acosf({0})",
    "atan": "atanf({0})",
    "sinh": "sinhf({0})",
    "cosh": "coshf({0})",
    "asinh": "asinhf({0})",
    "square": "{0} * {0}",
    "reciprocal": "1.0f / {0}",
    "floor": "floorf({0})",
    "ceil": "ceilf({0})",
    "trunc": "truncf({0})",
    "round": "rintf({0})",
    "frac": "{0} - truncf({0})",
    "sign": "({0} > 0.0f) - ({0} < 0.0f)",
    "log1p": "log1pf({0})",
    "expm1": "expm1f({0})",
    "sinc": "{0} == 0.0f ? 1.0f : sinf(3.14159265f * {0}) / (3.14159265f * {0})",
    "logit": "logf({0} / (1.0f - {0}))",
    "silu": "{0} / (1.0f + expf(-{0}))",
    "selu": "1.05070099f * ({0} > 0.0f ? {0} : 1.67326324f * expm1f({0}))",
    "mish": "{0} * tanhf({0} > 20.0f ? {0} : log1pf(expf({0})))",
    "softsign": "{0} / (1.0f + fabsf({0}))",
    "hardsigmoid": "fminf(fmaxf({0} / 6.0f + 0.5f, 0.0f), 1.0f)",
    "hardswish": "{0} * fminf(fmaxf({0} + 3.0f, 0.0f), 6.0f) / 6.0f",
    "logsigmoid": "fminf({0}, 0.0f) - log1pf(expf(-fabsf({0})))",
    "tanhshrink": "{0} - tanhf({0})",
    "gelu": "0.5f * {0} * (1.0f + erff({0} * 0.70710678f))",
    "gelu_tanh": "0.5f * {0} * (1.0f + tanhf(0.79788456f * ({0} + 0.044715f * {0} * {0} * {0})))",
    "elu": "{0} > 0.0f ? {0} : {alpha} * expm1f({0})",
    "celu": "{0} > 0.0f ? {0} : {alpha} * expm1f({0} / {alpha})",
    "leaky_relu": "{0} > 0.0f ? {0} : {negative_slope} * {0}",
    "prelu": "{0} > 0.0f ? {0} : {1} * {0}",
    "hardtanh": "fminf(fmaxf({0}, {min_val}), {max_val})",
    "hardshrink": "fabsf({0}) > {lambd} ? {0} : 0.0f",
    "softshrink": "{0} > {lambd} ? {0} - {lambd} : ({0} < -{lambd} ? {0} + {lambd} : 0.0f)",
    "threshold": "{0} > {threshold} ? {0} : {value}",
    "softplus": "{0} * {beta} > {threshold} ? {0} : log1pf(expf({0} * {beta})) / {beta}",
    "nan_to_num": "{0} != {0} ? {nan} : fminf(fmaxf({0}, -3.40282347e38f), 3.40282347e38f)",
}
"""The operators on floats."""

COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
LOGIC = {
    "logical_and": "({0} && {1})",
    "logical_or": "({0} || {1})",
    "logical_xor": "({0} != {1})",
    "logical_not": "!{0}",
}
"""Operators with a boolean result; those of `LOGIC` take booleans, too."""

DEFAULTS = {
    "alpha": "1.0",
    "negative_slope": "0.01",
    "min_val": "-1.0",
    "max_val": "1.0",
    "beta": "1.0",
    "threshold": "20.0",
    "lambd": "0.5",
    "value": "1.0",
    "nan": "0.0",
}
"""torch's defaults of options."""

FUSED = frozenset({*ELEMENTWISE, *COMPARISONS, *LOGIC, "where", "tril", "triu", "causal", "arange", "cast"})
"""Operators that fuse into the kernel before or after them."""
