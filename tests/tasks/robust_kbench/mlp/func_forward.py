import torch
import torch.nn as nn
import torch.nn.functional as F


def forward_fn(x, first_weight, first_bias, second_weight, second_bias):
    hidden = torch.relu(F.linear(x, first_weight, first_bias))
    return F.linear(hidden, second_weight, second_bias)


class Model(nn.Module):
    """Two linear layers with a ReLU between them."""

    def __init__(self, in_features, hidden, out_features=8):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)

    def forward(self, x, fn=forward_fn):
        return fn(
            x,
            first_weight=self.first.weight,
            first_bias=self.first.bias,
            second_weight=self.second.weight,
            second_bias=self.second.bias,
        )


def get_inputs(batch_size, in_features):
    return [torch.randn(batch_size, in_features)]


input_names = ["x"]
