"""Prompts and targets with templates that open the reasoning or drop it."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.training.fine_tune.samples import Encoder
from kernelwright.training.fine_tune.texts import Conversation


class Template:
    """Makes a tokenizer whose template has this end of the generation prompt, and may drop the answers' reasoning."""

    chat_template = "a template"
    eos_token = "<end>"
    all_special_tokens = ("<end>",)

    def __init__(self, opened: str, drops: bool = False) -> None:
        self.opened = opened
        self.drops = drops
        self.added_tokens_decoder: dict[int, Any] = {}

    def apply_chat_template(
        self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool = False
    ) -> str:
        said = [m["content"].split("</think>")[-1] if self.drops else m["content"] for m in messages]
        text = "".join(f"<{m['role']}>{s}<end>" for m, s in zip(messages, said, strict=True))
        return text + (f"<assistant>{self.opened}" if add_generation_prompt else "")


def texts(template: Template, answer: str, reference: bool = False) -> tuple[str, str]:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer}]
    return Encoder(template, 100, "auto", True, True).texts(Conversation("row", messages, reference))


@pytest.mark.parametrize("opened", ["<think>\n", "<think>"])
@pytest.mark.parametrize("answer", ["<think>\nwell</think>file", "<think>well</think>file"])
@pytest.mark.parametrize("drops", [True, False])
def test_a_tag_that_the_prompt_ends_with_is_not_said_again(opened: str, answer: str, drops: bool) -> None:
    before, trained = texts(Template(opened, drops), answer)
    assert before.endswith(f"<assistant>{opened}")
    assert trained.lstrip("\n") == "well</think>file<end>" and (before + trained).count("<think>") == 1


def test_reasoning_is_trained_on_though_the_template_drops_it() -> None:
    assert texts(Template("", drops=True), "<think>well</think>file")[1] == "<think>well</think>file<end>"
    assert texts(Template(""), "<think>well</think>file")[1] == "<think>well</think>file<end>"


def test_a_bare_cuda_file_is_fenced_as_cuda() -> None:
    code = "#include <cuda.h>\n__global__ void k() {}"
    assert texts(Template(""), code, reference=True)[1] == f"```cuda\n{code}\n```<end>"
