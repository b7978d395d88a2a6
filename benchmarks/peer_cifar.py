#!/usr/bin/env python3
"""The recipe of configs/resnet50_cifar10.yaml in plain PyTorch: what npu_train's accuracy is compared with.

  python benchmarks/peer_cifar.py data/cifar-10-batches-bin --seed 42 --epochs 20 --step-size 15

ResNet-50 (ImageNet stem, last gamma of each block zero), SGD 0.1 / 0.9 / 1e-4, batch 128, crop with padding 4, mirror, StepLR / 10.
Needs torch and numpy. A line for each epoch, and a JSON line at the end: acc1 (per cent, after the last epoch), best, seconds.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        cout = 4 * width
        self.main = nn.Sequential(nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
                                  nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
                                  nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout))
        nn.init.zeros_(self.main[-1].weight)
        self.side = nn.Identity()
        if stride != 1 or cin != cout:
            self.side = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x): return F.relu(self.main(x) + self.side(x))


def resnet50(classes):
    layers, cin = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(cin, width, stride if i == 0 else 1))
            cin = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))
    for m in model.modules():
        if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')
    return model


def read(paths):
    raw = np.concatenate([np.fromfile(p, np.uint8).reshape(-1, 3073) for p in paths])
    return raw[:, 1:].reshape(-1, 3, 32, 32), torch.from_numpy(raw[:, 0].astype(np.int64))


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
    pictures, labels = read(sorted(a.data.glob('data_batch_*.bin')))
    mean, std = np.float32([0.4914, 0.4822, 0.4465]) * 255, np.float32([0.2470, 0.2435, 0.2616]) * 255
    ready = lambda x: torch.from_numpy((x - mean[:, None, None]) / std[:, None, None]).contiguous(memory_format=torch.channels_last)
    test, test_labels = read([a.data / 'test_batch.bin'])
    model = resnet50(10).to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(sgd, a.step_size, 0.1)
    best = 0.0
    start = time.time()
    for epoch in range(a.epochs):
        model.train()
        order, total = rng.permutation(len(pictures)), 0.0
        for i in range(0, len(order), 128):
            rows = order[i:i + 128]
            padded = np.pad(pictures[rows], ((0, 0), (0, 0), (4, 4), (4, 4)))
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
