"""Computes logits of Llama- and Qwen2-shaped checkpoints in plain torch: prefill of prompts, and one token per row.

Written for small models and many rows: matrix products are fused (q, k and v; gate and up), the key-value cache is
allocated once and written in place, and no shape in a step depends on data, so that a step can be a CUDA graph.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.errors import ConfigError
from kernelwright.inference.quantised import read_weights

KNOWN = ("llama", "qwen2")
"""Supported values of `model_type`."""


@dataclass(frozen=True)
class DecoderConfig:
    """A decoder's shape from `config.json`, with the token ids that end an answer (`ends`)."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    context: int
    theta: float
    epsilon: float
    tied: bool
    ends: tuple[int, ...]
    bare_task: bool
    """True where the prompt is the task's source alone, as for our models."""
    schedules: tuple[str, ...] = ()
    """Schedules for an answer's first line, in the order of tries (`chat.begun`); empty where it has no such line."""

    @classmethod
    def read(cls, folder: Path) -> DecoderConfig:
        """Reads a checkpoint's configuration. Raises `ConfigError` without one, or for an unsupported architecture."""
        raw = _json(folder / "config.json")
        kind = raw.get("model_type")
        if kind not in KNOWN:
            raise ConfigError(
                f"{str(folder)!r} is a {kind!r} model; this engine computes {' and '.join(KNOWN)}",
                hint="use --policy hf:FOLDER, in training rollout.backend=transformers",
            )
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        if rope.get("rope_type", "default") != "default" or raw.get("hidden_act", "silu") != "silu":
            raise ConfigError(
                f"{str(folder)!r} has rotary scaling or an activation that this engine does not compute",
                hint="use --policy hf:FOLDER, in training rollout.backend=transformers",
            )
        for name in ("mlp_bias", "use_sliding_window", *(("attention_bias",) if kind == "llama" else ())):
            if raw.get(name):
                raise ConfigError(
                    f"{str(folder)!r} has {name}, which this engine does not compute",
                    hint="use --policy hf:FOLDER, in training rollout.backend=transformers",
                )
        ends = _json(folder / "generation_config.json", {}).get("eos_token_id", raw.get("eos_token_id"))
        try:
            return cls(
                vocabulary=raw["vocab_size"],
                hidden=raw["hidden_size"],
                layers=raw["num_hidden_layers"],
                heads=raw["num_attention_heads"],
                kv_heads=raw.get("num_key_value_heads", raw["num_attention_heads"]),
                head_width=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
                context=raw["max_position_embeddings"],
                theta=float(rope.get("rope_theta", raw.get("rope_theta", 10000.0))),
                epsilon=raw.get("rms_norm_eps", 1e-6),
                tied=bool(raw.get("tie_word_embeddings", False)),
                ends=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
                bare_task=raw.get("kernelwright", {}).get("prompt") == "task",
                schedules=tuple(raw.get("kernelwright", {}).get("schedules", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{str(folder / 'config.json')!r} lacks a field: {error}") from error


def _json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        if default is not None:
            return default
        raise ConfigError(
            f"there is no {path.name} in {str(path.parent)!r}", hint="name the folder of a Hugging Face checkpoint"
        ) from error
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error}") from error


@dataclass(frozen=True)
class Layer:
    """Weights of one block; `bias` belongs to q, k and v."""

    norm: Tensor
    qkv: Tensor
    bias: Tensor | None
    out: Tensor
    norm_after: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Cache:
    """Keys and values: (layers, rows, kv heads, capacity, head width) each."""

    keys: Tensor
    values: Tensor

    @property
    def capacity(self) -> int:
        """The tokens that a row can hold."""
        return self.keys.shape[3]

    def move(self, source: int, target: int, length: int) -> None:
        """Copies the first `length` tokens of row `source` to row `target`."""
        for part in (self.keys, self.values):
            part[:, target, :, :length] = part[:, source, :, :length]


class Decoder:
    """A checkpoint's weights on one device. No `nn.Module`: it is never trained."""

    def __init__(
        self, config: DecoderConfig, weights: dict[str, Tensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config, self.device, self.dtype = config, device, dtype
        half = config.head_width // 2
        rates = config.theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(config.context, dtype=torch.float32)[:, None] * rates
        self.cos, self.sin = (t.to(device, dtype) for t in (angles.cos(), angles.sin()))

        def take(*names: str) -> Tensor:
            return torch.cat([weights[name] for name in names]).to(device, dtype).contiguous()

        try:
            self.embedding = take("model.embed_tokens.weight")
            self.norm = take("model.norm.weight")
            self.head = self.embedding if config.tied else take("lm_head.weight")
            self.layers = [_layer(f"model.layers.{i}.", weights, take) for i in range(config.layers)]
        except KeyError as error:
            raise ConfigError(
                f"the checkpoint has no weight {error}", hint="its config.json may be of another model"
            ) from error

    @classmethod
    def load(cls, folder: Path, device: torch.device, dtype: torch.dtype) -> Decoder:
        """A checkpoint in safetensors, one file or several, quantised or not. Raises `ConfigError`."""
        return cls(DecoderConfig.read(folder), read_weights(folder), device, dtype)

    def cache(self, rows: int, capacity: int) -> Cache:
        """Allocates an empty cache."""
        c = self.config
        shape = (c.layers, rows, c.kv_heads, capacity, c.head_width)
        keys, values = (torch.zeros(shape, device=self.device, dtype=self.dtype) for _ in range(2))
        return Cache(keys, values)

    def prefill(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Computes prompts (rows, longest), padded on the right, with their lengths (rows,).

        Returns the logits (rows, vocabulary) after each prompt's last token, and keys and values (layers, rows, kv
        heads, longest, head width).
        """
        rows, length = tokens.shape
        c = self.config
        x = F.embedding(tokens, self.embedding)
        cos, sin = self.cos[:length, None], self.sin[:length, None]
        kept: list[tuple[Tensor, Tensor]] = []
        for layer in self.layers:
            h = F.rms_norm(x, (c.hidden,), layer.norm, c.epsilon)
            q, k, v = self._heads(F.linear(h, layer.qkv, layer.bias), cos, sin)
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            kept.append((k, v))
            # padding is on the right, and causal attention only looks to the left
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=c.heads != c.kv_heads)
            x = x + F.linear(attended.transpose(1, 2).reshape(rows, length, -1), layer.out)
            x = x + self._feed_forward(x, layer)
        last = x[torch.arange(rows, device=self.device), lengths - 1]
        return self._logits(last), torch.stack([k for k, _ in kept]), torch.stack([v for _, v in kept])

    def step(self, tokens: Tensor, positions: Tensor, cache: Cache, length: int) -> Tensor:
        """Appends one token to the first rows of a cache; returns logits (rows, vocabulary).

        `tokens` and `positions` are (rows,). Attention covers the first `length` tokens of the cache; `length` exceeds
        every position.
        """
        c = self.config
        rows = tokens.shape[0]
        at = torch.arange(rows, device=self.device)
        x = F.embedding(tokens, self.embedding)
        cos, sin = self.cos[positions, None], self.sin[positions, None]
        hidden = torch.arange(length, device=self.device) > positions[:, None]
        mask = torch.zeros(rows, length, device=self.device, dtype=self.dtype).masked_fill_(hidden, float("-inf"))
        mask = mask[:, None, None]
        for number, layer in enumerate(self.layers):
            h = F.rms_norm(x, (c.hidden,), layer.norm, c.epsilon)
            q, k, v = self._heads(F.linear(h, layer.qkv, layer.bias), cos, sin)
            keys, values = cache.keys[number], cache.values[number]
            keys[at, :, positions] = k
            values[at, :, positions] = v
            # the query heads of a key head become its rows: keys and values are read once, without expansion
            q = q.view(rows, c.kv_heads, c.heads // c.kv_heads, c.head_width)
            attended = F.scaled_dot_product_attention(q, keys[:rows, :, :length], values[:rows, :, :length], mask)
            x = x + F.linear(attended.reshape(rows, -1), layer.out)
            x = x + self._feed_forward(x, layer)
        return self._logits(x)

    def _heads(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Splits into queries, keys (both with rotary embedding) and values: (…, heads, head width)."""
        c = self.config
        split = qkv.view(*qkv.shape[:-1], c.heads + 2 * c.kv_heads, c.head_width)
        first, second = split[..., : c.heads + c.kv_heads, :].chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned[..., : c.heads, :], turned[..., c.heads :, :], split[..., c.heads + c.kv_heads :, :]

    def _feed_forward(self, x: Tensor, layer: Layer) -> Tensor:
        h = F.rms_norm(x, (self.config.hidden,), layer.norm_after, self.config.epsilon)
        gate, up = F.linear(h, layer.gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, layer.down)

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(F.rms_norm(x, (self.config.hidden,), self.norm, self.config.epsilon), self.head).float()


def _layer(prefix: str, weights: dict[str, Tensor], take: Any) -> Layer:
    attention, network = prefix + "self_attn.", prefix + "mlp."
    biased = f"{attention}q_proj.bias" in weights
    return Layer(
        norm=take(prefix + "input_layernorm.weight"),
        qkv=take(*(f"{attention}{n}_proj.weight" for n in "qkv")),
        bias=take(*(f"{attention}{n}_proj.bias" for n in "qkv")) if biased else None,
        out=take(f"{attention}o_proj.weight"),
        norm_after=take(prefix + "post_attention_layernorm.weight"),
        gate_up=take(f"{network}gate_proj.weight", f"{network}up_proj.weight"),
        down=take(f"{network}down_proj.weight"),
    )
