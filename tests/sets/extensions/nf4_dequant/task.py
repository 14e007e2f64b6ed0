import torch
import torch.nn as nn

ROWS, COLS, BLOCK = 16, 256, 64
CODE = [-1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
        0.07958030, 0.16093020, 0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1.0]  # fmt: skip


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("code", torch.tensor(CODE))

    def forward(self, packed, absmax):
        high, low = packed >> 4, packed & 15
        values = self.code[torch.stack((high, low), dim=-1).reshape(-1).long()]
        return (values.view(-1, BLOCK) * absmax[:, None]).reshape(ROWS, COLS).half()


def get_inputs():
    return [
        torch.randint(0, 256, (ROWS * COLS // 2,), dtype=torch.uint8),
        torch.rand(ROWS * COLS // BLOCK) + 0.5,
    ]


def get_init_inputs():
    return []
