"""Loads a causal language model and its tokenizer with transformers, from a folder or the Hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.errors import ConfigError, PolicyError
from kernelwright.records import Message
from kernelwright.tasks.formats.hub import offline_where_silent


def place_of(spec: str) -> str:
    """Returns the path of a folder that transformers loads, or a Hub id as it is.

    A quantised checkpoint is expanded into the cache. Raises `ConfigError` for what is neither folder nor id.
    """
    from kernelwright.inference.quantised import full_checkpoint

    if not spec:
        raise ConfigError("no model is named", hint="name the folder of a checkpoint, or OWNER/NAME on the Hub")
    folder = Path(spec).expanduser()
    if spec.startswith((".", "/", "~")) and not folder.is_dir():
        raise ConfigError(f"there is no folder {spec!r}", hint="name the folder of a checkpoint, or a Hub id")
    if folder.is_dir():
        return full_checkpoint(str(folder))
    offline_where_silent()
    return spec


def load_tokenizer(spec: str, trust_remote_code: bool = False) -> HubTokenizer:
    """Loads a model's tokenizer. Raises `ConfigError` where it cannot be loaded or has no chat template."""
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise ConfigError("this needs transformers", hint="pip install 'kernelwright[train]'") from error
    place = place_of(spec)
    try:
        inner = tokenizer_kind(place).from_pretrained(place, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ConfigError(
            f"the tokenizer of {spec!r} cannot be loaded: {_first_line(error)}", hint="check the folder or Hub id"
        ) from error
    tokenizer = HubTokenizer(inner, spec)
    try:
        tokenizer.prompt([Message(role="user", content="task")])
    except PolicyError as error:
        raise ConfigError(str(error), hint=error.hint) from error
    return tokenizer


def tokenizer_kind(place: str) -> Any:
    """Returns the class of transformers that loads a model's tokenizer exactly as its files define it.

    AutoTokenizer chooses by the model's architecture first, and that class replaces the file's pre-tokenizer.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    return PreTrainedTokenizerFast if _as_in_file(place) else AutoTokenizer


def _as_in_file(place: str) -> bool:
    """Tells whether a folder's `tokenizer_config.json` declares that `tokenizer.json` defines the whole tokenizer."""
    try:
        config = json.loads((Path(place) / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    kinds = ("PreTrainedTokenizerFast", "TokenizersBackend")
    return isinstance(config, dict) and config.get("tokenizer_class") in kinds


def load_model(spec: str, attention: str = "auto", trust_remote_code: bool = False) -> Any:
    """Loads a model for generation: bfloat16 on a GPU, else float32. Raises `ConfigError`.

    Callers drop its generation settings (temperature, penalties, …): each request has its own.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise ConfigError("this needs torch and transformers", hint="pip install 'kernelwright[train]'") from error
    gpu = torch.cuda.is_available()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            place_of(spec),
            dtype=torch.bfloat16 if gpu else torch.float32,
            attn_implementation=None if attention == "auto" else attention,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ConfigError(
            f"the model {spec!r} cannot be loaded: {_first_line(error)}", hint="check the folder or Hub id"
        ) from error
    model.requires_grad_(False)
    return (model.cuda() if gpu else model).eval()


def ends_of(generation_config: Any, tokenizer: Any) -> frozenset[int]:
    """Returns the token ids that end an answer."""
    stated = getattr(generation_config, "eos_token_id", None)
    ends = set(stated) if isinstance(stated, (list, tuple)) else {stated}
    return frozenset(int(i) for i in ends | {tokenizer.eos_token_id} if i is not None)


def context_of(config: Any, tokenizer: HubTokenizer) -> int:
    """Returns the bound on tokens of a prompt with its answer; the tokenizer's for a model that states none."""
    text = config.get_text_config()
    stated = getattr(text, "max_position_embeddings", None) or getattr(text, "seq_length", None)
    return int(stated or tokenizer.limit)


def asked_how(config: Any) -> tuple[bool, tuple[str, ...]]:
    """Returns `bare_task` and `schedules` (see `GenerationBackend`) from a model's configuration."""
    own = getattr(config, "kernelwright", None) or {}
    return own.get("prompt") == "task", tuple(own.get("schedules", ()))


class HubTokenizer:
    """A transformers tokenizer with its own chat template."""

    def __init__(self, inner: Any, name: str) -> None:
        self.inner, self.name = inner, name
        self.limit = min(int(inner.model_max_length), 1 << 20)
        """The bound on a text's tokens, from the tokenizer's files."""
        inner.model_max_length = 1 << 40  # no warnings: callers check the limit

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Returns the ids of a conversation with the head of the assistant's turn.

        For a template without system messages (Gemma's), their text is put before the next message's. Raises
        `PolicyError` where there is no template, or it refuses the conversation.
        """
        from jinja2 import TemplateError

        asked = [{"role": m.role, "content": m.content} for m in messages]
        try:
            try:
                text = self._rendered(asked)
            except TemplateError:
                text = self._rendered(_without_system(asked))
        except TemplateError as error:
            raise PolicyError(f"the chat template of {self.name!r} refuses the conversation: {error}") from error
        except ValueError as error:
            raise PolicyError(
                f"{self.name!r} has no chat template",
                hint="name a model that was tuned for chat, or put a chat_template.jinja into its folder",
            ) from error
        return list(self.inner(text, add_special_tokens=False)["input_ids"])

    def _rendered(self, asked: list[dict[str, str]]) -> str:
        return str(self.inner.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of plain text."""
        return list(self.inner(text, add_special_tokens=False)["input_ids"]) if text else []

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, without special tokens and with unchanged spaces."""
        return str(self.inner.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _without_system(asked: list[dict[str, str]]) -> list[dict[str, str]]:
    """Moves the text of system messages to the head of the next message."""
    found: list[dict[str, str]] = []
    words: list[str] = []
    for message in asked:
        if message["role"] == "system":
            words.append(message["content"])
            continue
        found.append({**message, "content": "\n\n".join([*words, message["content"]])})
        words = []
    return found


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
