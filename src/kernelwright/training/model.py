"""The decoder to train: Llama's architecture with Hugging Face's parameter names.

Pre-norm blocks of grouped-query attention with rotary embeddings and a gated SiLU network, tied embeddings. The forward
pass takes packed rows and returns the summed loss, so that logits never leave the compiled function.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.training.attention import Spans, attend

IGNORE = -100


@dataclass(frozen=True)
class ModelShape:
    """The size of a decoder. `bias`: on q, k and v, which makes the checkpoint a Qwen2 model.

    Runs train without bias: for `qwen2`, transformers 5 replaces the pre-tokenizer of `tokenizer.json` by Qwen2's
    (MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS), which is wrong for any other tokenizer.
    """

    vocabulary: int
    hidden: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 2
    feed_forward: int = 1536
    context: int = 4096
    theta: float = 10000.0
    epsilon: float = 1e-6
    bias: bool = False

    @property
    def head_width(self) -> int:
        return self.hidden // self.heads

    def flops_a_token(self, attended: float) -> float:
        """Returns the floating-point operations of training on one token (forward and backward), as in PaLM, appendix
        B.

        `attended`: the average number of tokens that a token attends to.
        """
        kv = self.kv_heads * self.head_width
        layer = self.hidden * (2 * self.hidden + 2 * kv + 3 * self.feed_forward)
        matrices = self.layers * layer + self.vocabulary * self.hidden
        return 6.0 * matrices + 12.0 * self.layers * self.hidden * attended

    def hf_config(self) -> dict[str, Any]:
        """Returns the content of `config.json`."""
        kind = "Qwen2" if self.bias else "Llama"
        return {
            "architectures": [f"{kind}ForCausalLM"],
            "model_type": kind.lower(),
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_width,
            "intermediate_size": self.feed_forward,
            "max_position_embeddings": self.context,
            "rope_theta": self.theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.theta},
            "rms_norm_eps": self.epsilon,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "use_cache": True,
            "attention_dropout": 0.0,
        }

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies rotary embeddings to x (rows, length, heads, width) by cos and sin (rows, length, 1, width / 2)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Norm(nn.Module):
    """Root mean square norm, in float32."""

    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale * self.weight).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention within the pairs of packed rows."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = shape.heads, shape.kv_heads, shape.head_width
        self.q_proj = nn.Linear(shape.hidden, shape.heads * self.width, bias=shape.bias)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * self.width, bias=shape.bias)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * self.width, bias=shape.bias)
        self.o_proj = nn.Linear(shape.heads * self.width, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, spans: Spans, kind: str) -> Tensor:
        rows, length, _ = x.shape
        q = rotate(self.q_proj(x).view(rows, length, self.heads, self.width), cos, sin)
        k = rotate(self.k_proj(x).view(rows, length, self.kv_heads, self.width), cos, sin)
        v = self.v_proj(x).view(rows, length, self.kv_heads, self.width)
        q, k = q.to(v.dtype), k.to(v.dtype)
        return self.o_proj(attend(kind, q, k, v, spans).reshape(rows, length, -1))


class FeedForward(nn.Module):
    """Gated SiLU network."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down_proj = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """One block."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.epsilon)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, spans: Spans, kind: str) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, spans, kind)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """The decoder without its head; parameters are named as in Hugging Face's checkpoints."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.epsilon)


class TrainingDecoder(nn.Module):
    """The trained model. `attention` is one of `attention.KINDS`."""

    def __init__(self, shape: ModelShape, attention: str = "dense") -> None:
        super().__init__()
        self.shape = shape
        self.attention = attention
        self.model = Trunk(shape)
        half = shape.head_width // 2
        rates = shape.theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(shape.context, dtype=torch.float32)[:, None] * rates
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        """Draws normal weights; projections into the residual stream are scaled by 1 / sqrt(2 * layers)."""
        for name, weight in self.named_parameters():
            if weight.ndim == 1:
                if name.endswith("bias"):
                    nn.init.zeros_(weight)
                continue
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(weight, std=0.02 / (2 * self.shape.layers) ** 0.5 if residual else 0.02)

    def hidden(self, tokens: Tensor, positions: Tensor, spans: Spans) -> Tensor:
        """Returns states (rows, length, hidden) after the last norm, for tokens and positions (rows, length)."""
        x = self.model.embed_tokens(tokens)
        if torch.is_autocast_enabled(x.device.type):  # also the residual stream: it is most of the memory traffic
            x = x.to(torch.get_autocast_dtype(x.device.type))
        cos, sin = (t[positions].unsqueeze(2) for t in (self.cos, self.sin))
        for layer in self.model.layers:
            x = layer(x, cos, sin, spans, self.attention)
        return self.model.norm(x)

    def logits(self, tokens: Tensor, positions: Tensor, spans: Spans) -> Tensor:
        """Returns logits (rows, length, vocabulary)."""
        return F.linear(self.hidden(tokens, positions, spans), self.model.embed_tokens.weight)

    def forward(self, tokens: Tensor, positions: Tensor, labels: Tensor, spans: Spans) -> Tensor:
        """Returns the loss summed over all labels except `IGNORE`; labels are already shifted."""
        logits = self.logits(tokens, positions, spans)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE, reduction="sum")
