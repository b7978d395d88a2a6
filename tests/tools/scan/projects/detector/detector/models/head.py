import torch
from mmcv.ops import RoIAlign, batched_nms
from mmcv.runner import force_fp32
from mmdet.models import HEADS
from torch import nn
from torch.nn import functional as F
from torchvision.ops import nms


@HEADS.register_module()
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.roi = RoIAlign(7, 1.0)
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.rnn = torch.nn.LSTM(256, 256)

    @force_fp32()
    def forward(self, x):
        x = F.interpolate(x, scale_factor=2)
        x = F.relu(x)
        keep = torch.nonzero(x.mean((1, 2, 3)) > 0)
        std, mean = torch.std_mean(x)
        weights = x.double() * torch.float64
        return self.pool(x), keep, std, mean, weights, nms(x, x, 0.5), batched_nms(x, x, x, 0.5)
