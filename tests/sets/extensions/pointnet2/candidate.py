import torch
import torch.nn as nn

try:
    import point_ops_ext as _ext
except ImportError:
    raise ImportError("build point_ops_ext first: pip install .") from None


class ModelNew(nn.Module):
    def forward(self, xyz, features):
        centres = xyz[:, :10].contiguous()
        idx = _ext.ball_query(centres, xyz, 0.9, 8)
        return idx, _ext.group_points(features, idx)
