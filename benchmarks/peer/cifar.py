#!/usr/bin/env python3
"""The recipe of configs/resnet50_cifar10.yaml in plain PyTorch, with which the accuracy of npu_train is compared.

  python benchmarks/peer/cifar.py data/cifar-10-batches-bin --seed 42 --epochs 20 --step-size 15

ResNet-50 (ImageNet stem, last gamma of each block zero), SGD 0.1 / 0.9 / 1e-4, batch 128, crop with padding 4, mirror, StepLR / 10.
Requires torch and numpy. Prints a line for each epoch, and a JSON line at the end: acc1 (in percent, after the last epoch), best, seconds.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
from torch.nn import functional as F

from data import CIFAR_MEAN, CIFAR_STD, read_cifar
from models import resnet50


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('data', type=pathlib.Path)
    p.add_argument('--seed', type=int, default=42)
    p.add_argument('--epochs', type=int, default=90)
    p.add_argument('--step-size', type=int, default=30)
    p.add_argument('--threads', type=int, default=0)
    a = p.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    rng = np.random.default_rng(a.seed)
    (images, labels), (test, test_labels) = read_cifar(a.data), read_cifar(a.data, 'test_batch.bin')
    mean, std = np.float32(CIFAR_MEAN) * 255, np.float32(CIFAR_STD) * 255
    ready = lambda x: torch.from_numpy((x - mean[:, None, None]) / std[:, None, None]).contiguous(memory_format=torch.channels_last)
    model = resnet50(10).to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(sgd, a.step_size, 0.1)
    best = 0.0
    start = time.time()
    for epoch in range(a.epochs):
        model.train()
        order, total = rng.permutation(len(images)), 0.0
        for i in range(0, len(order), 128):
            rows = order[i:i + 128]
            padded = np.pad(images[rows], ((0, 0), (0, 0), (4, 4), (4, 4)))
            y, x, turn = rng.integers(0, 9, len(rows)), rng.integers(0, 9, len(rows)), rng.random(len(rows)) < 0.5
            cut = np.stack([q[:, r:r + 32, c:c + 32][:, :, ::-1 if t else 1] for q, r, c, t in zip(padded, y, x, turn)])
            loss = F.cross_entropy(model(ready(cut)), labels[rows])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            total += loss.item() * len(rows)
        schedule.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(ready(test[i:i + 128])).argmax(1) == test_labels[i:i + 128]).sum().item() for i in range(0, len(test), 128))
        acc = 100 * right / len(test)
        best = max(best, acc)
        print(f'epoch {epoch + 1}: train loss {total / len(order):.4f}  acc1 {acc:.2f}  {time.time() - start:.0f} s', flush=True)
    print(json.dumps({'seed': a.seed, 'acc1': acc, 'best': best, 'seconds': time.time() - start}))


if __name__ == '__main__': main()
