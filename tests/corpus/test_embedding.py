"""Embeddings by a model on disk: they have unit length, and near tasks are removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelwright.corpus.decontaminate import Index, Rules
from kernelwright.corpus.embedding import load_embedding
from kernelwright.errors import ConfigError

pytestmark = pytest.mark.slow
TEXT = "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n        return {}\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a tiny decoder with random weights, and a tokenizer of single bytes."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("model")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=len(alphabet), num_key_value_heads=2, **sizes)
    transformers.LlamaModel(config).save_pretrained(folder)
    return folder


def test_rows_have_unit_length_and_equal_texts_are_equal(model: Path) -> None:
    embed = load_embedding(str(model))
    rows = embed(["relu", "matmul of two", "relu"])
    assert rows.shape == (3, 16) and np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert np.allclose(rows[0], rows[2]) and not np.allclose(rows[0], rows[1])


def test_the_rule_goes_by_distance(model: Path) -> None:
    embed = load_embedding(str(model))
    sources = [TEXT.format("torch.relu(x)"), TEXT.format("torch.cumsum(x, 0) * torch.sin(x)")]
    away = float(np.linalg.norm(np.subtract(*embed(sources))))
    index = Index(sources[:1], Rules(ast=1.0, jaccard=1.0, embedding=away * 1.01), embed)
    assert index.near(sources[1]).reasons == ("embedding",)
    assert index.near(sources[1]).distance == pytest.approx(away, rel=1e-4)
    assert Index(sources[:1], Rules(ast=1.0, jaccard=1.0, embedding=away * 0.99), embed).near(sources[1]).reasons == ()


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match="no embedding model"):
        load_embedding(str(tmp_path))
