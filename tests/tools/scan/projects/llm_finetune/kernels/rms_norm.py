import torch
import triton
import triton.language as tl
from xformers.ops import memory_efficient_attention


@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + offsets, mask=offsets < n)
    tl.store(y_ptr + row * n + offsets, x, mask=offsets < n)


def rms_norm(x):
    y = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
    return y


@torch.jit.script
def gelu(x):
    return x * 0.5


attention = memory_efficient_attention
