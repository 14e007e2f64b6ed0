import torch
import torch.nn as nn

BATCH, CHANNELS, HEIGHT, WIDTH, ROIS, SIZE = 2, 3, 12, 14, 5, 3


class Model(nn.Module):
    def forward(self, x, boxes):
        out = x.new_empty(boxes.shape[0], x.shape[1], SIZE, SIZE)
        for r in range(boxes.shape[0]):
            n, x0, y0, w, h = (int(v) for v in boxes[r])
            for i in range(SIZE):
                for j in range(SIZE):
                    part = x[n, :, y0 + i * h : y0 + (i + 1) * h, x0 + j * w : x0 + (j + 1) * w]
                    out[r, :, i, j] = part.mean(dim=(1, 2))
        return out


def get_inputs():
    boxes = torch.stack(
        (
            torch.randint(0, BATCH, (ROIS,)),
            torch.randint(0, 5, (ROIS,)),
            torch.randint(0, 3, (ROIS,)),
            torch.randint(1, 4, (ROIS,)),
            torch.randint(1, 4, (ROIS,)),
        ),
        dim=1,
    )
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH), boxes.float()]


def get_init_inputs():
    return []
