"""A training as a plain PyTorch script has it, with torch_npu, for npu_launches_test.py: python_launches.py NETWORK FOLDER PRECISION STEPS

It has the metrics that train_app has, summed on the device, and the fused optimizer. Prints how often sim_cann was called for
STEPS steps, which follow three steps that are not counted."""
import contextlib
import ctypes
import pathlib
import sys

import torch
import torch_npu  # noqa: F401
from python_dumps import batches, network
from torch.nn import functional as F


def calls():
    function = ctypes.CDLL('libascendcl.so').sim_cann_calls
    function.restype = ctypes.c_char_p
    torch.npu.synchronize()
    return {line.split()[0]: int(line.split()[1]) for line in function().decode().splitlines()}


def main():
    name, folder, precision, steps = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    net = network(name).npu()
    rule = torch.optim.AdamW if name == 'gpt2' else torch.optim.SGD
    optimizer = rule(net.parameters(), lr=0.001, fused=True) if name == 'gpt2' else rule(net.parameters(), lr=0.01, momentum=0.9)
    data = batches(name, folder)
    sums = torch.zeros(3, device='npu')

    def step(x, y):
        x, y = x.pin_memory().to('npu', non_blocking=True), y.pin_memory().to('npu', non_blocking=True)
        low = torch.autocast('npu', torch.bfloat16) if precision == 'bf16-mixed' else contextlib.nullcontext()
        with low:
            out = net(x, use_cache=False).logits.flatten(0, 1) if name == 'gpt2' else net(x)
            loss = F.cross_entropy(out, y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            sums[0] += loss.detach()
            right = out.topk(min(5, out.shape[1]), 1).indices == y.flatten()[:, None]
            sums[1] += right[:, 0].sum()
            if name != 'gpt2': sums[2] += right.sum()

    for i in range(3): step(*data[i % len(data)])
    before = calls()
    for i in range(steps): step(*data[i % len(data)])
    for function, count in calls().items(): print(function, count - before.get(function, 0))


if __name__ == '__main__': main()
