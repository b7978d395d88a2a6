#!/usr/bin/env python3
"""Measures training steps in plain PyTorch: on one random batch, or with --data the complete loop over CIFAR-10 with augmentation.

  python benchmarks/peer/train.py --model resnet50 --image 224 --batch 16 --channels-last
  python benchmarks/peer/train.py --model resnet50 --image 32 --batch 128 --channels-last --data data/cifar-10-batches-bin
  python benchmarks/peer/train.py --model vit_tiny_cifar10 --batch 128 --precision bf16-mixed

Under torchrun it trains with DistributedDataParallel over Gloo (on a GPU over NCCL): --batch is that of each rank, and rank 0 reports.

  torchrun --nproc-per-node 2 benchmarks/peer/train.py --model vit_tiny_cifar10 --batch 64 --threads 1

The JSON line has step_ms_min, step_ms_median, samples_per_s (of the median), first_step_s (since the start of the process), loss,
peak_rss_mb, on a GPU peak_memory_bytes, parameters, flops_per_image. A step gets the batch, copies it to the device, and runs forward,
backward and update.
"""
import itertools
import os

import torch
from torch.nn import functional as F

import common


def batches(a):
    if a.data:
        import data
        loader = data.cifar(a.data, a.batch, a.workers)
        return itertools.chain.from_iterable(itertools.repeat(loader))
    return itertools.repeat((common.random_images(a), torch.randint(a.classes or 10, (a.batch,))))


class Training:
    def __init__(self, a):
        self.a = a
        self.model, self.forward = common.network(a)
        self.model.train()
        if 'RANK' in os.environ:
            torch.distributed.init_process_group('nccl' if a.device.type == 'cuda' else 'gloo')
            self.forward = torch.nn.parallel.DistributedDataParallel(self.forward, gradient_as_bucket_view=True)
        self.optimizer = common.optimizer(a, self.model)
        self.scaler = torch.amp.GradScaler(a.device.type, enabled=a.precision == '16-mixed')
        self.batches = batches(a)
        self.loss = None

    def step(self):
        x, y = (t.to(self.a.device, non_blocking=True) for t in next(self.batches))
        if self.a.channels_last: x = x.contiguous(memory_format=torch.channels_last)
        with common.autocast(self.a): loss = F.cross_entropy(self.forward(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.loss = loss.detach()


def main():
    p = common.parser(__doc__)
    p.add_argument('--steps', type=common.natural, default=100, help='measured steps (default: 100)')
    p.add_argument('--warmup', type=common.natural, default=10, help='steps before the measured ones, including the first (default: 10)')
    p.add_argument('--data', help='the folder with the binary files of CIFAR-10; requires torchvision')
    p.add_argument('--workers', type=int, default=2, help='processes that load batches of --data (default: 2)')
    a = common.parse(p)
    if a.data: a.classes = 10
    run = Training(a)
    run.step()
    run.loss.item()  # waits for the device
    first = common.process_age()
    common.timed(a, run.step, a.warmup - 1)
    seconds = common.timed(a, run.step, a.steps)
    middle = common.percentile(seconds, 50)
    if os.environ.get('RANK', '0') != '0': return
    common.report(a, step_ms_min=1e3 * seconds[0], step_ms_median=1e3 * middle, samples_per_s=a.batch / middle, first_step_s=first,
                  loss=run.loss.item())


if __name__ == '__main__': main()
