"""The smallest tasks, for tests that need any task."""

RELU = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return []
"""
DOUBLED = RELU.replace("torch.relu(x)", "torch.relu(x) * 2").replace("8, 16", "37, 300")
