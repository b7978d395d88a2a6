import torch
from torch.autograd import Function

from . import box_ext


class BoxIoU(Function):
    @staticmethod
    def forward(ctx, a, b):
        if not a.is_cuda:
            raise NotImplementedError("box_iou is implemented for cuda tensors only")
        out = torch.cuda.FloatTensor(a.size(0), b.size(0)).zero_()
        box_ext.forward(a.contiguous(), b.contiguous(), out)
        return out.type('torch.cuda.FloatTensor')


box_iou = BoxIoU.apply
