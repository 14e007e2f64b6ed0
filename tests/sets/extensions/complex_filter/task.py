import torch
import torch.nn as nn

ROWS, COLS = 10, 50


class Model(nn.Module):
    def forward(self, re, im, w_re, w_im):
        real = re * w_re - im * w_im
        imaginary = re * w_im + im * w_re
        energy = (real * real + imaginary * imaginary).sum(dim=1)
        return real, imaginary, energy


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS), torch.randn(COLS), torch.randn(COLS)]


def get_init_inputs():
    return []
