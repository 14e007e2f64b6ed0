"""Makes a nearly untrained model for cold starts: adds noise to every matrix of a checkpoint.

    python benchmarks/rl_cold.py MODEL OUT [--noise 0.4] [--seed 0]

`--noise` is the noise's standard deviation divided by the matrix's own. Vectors (norms) stay unchanged.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from kernelwright.inference.quantised import read_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--noise", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    shutil.copytree(asked.model, asked.out)
    file = asked.out / "model.safetensors"
    weights = read_weights(asked.model)
    generator = torch.Generator().manual_seed(asked.seed)
    for name, weight in weights.items():
        if weight.dim() >= 2:
            noise = torch.randn(weight.shape, generator=generator)
            weights[name] = (weight.float() + asked.noise * weight.float().std() * noise).to(weight.dtype)
    save_file(weights, file, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
