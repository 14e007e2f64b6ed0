import torch
import torch.nn as nn


def forward_fn(x):
    return torch.softmax(x, dim=-1)


def backward_fn(grad_output, y):
    return y * (grad_output - (grad_output * y).sum(dim=-1, keepdim=True))


class SoftmaxFunction(torch.autograd.Function):
    backward_fn = backward_fn

    @staticmethod
    def forward(ctx, x):
        y = forward_fn(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return SoftmaxFunction.backward_fn(grad_output, y)


class Model(nn.Module):
    """Softmax over the last dimension."""

    def forward(self, x, fn=SoftmaxFunction.apply):
        return fn(x)


def get_inputs(rows=4, columns=16):
    return [torch.randn(rows, columns)]


input_names = ["x"]
