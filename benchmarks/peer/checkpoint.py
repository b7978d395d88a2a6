#!/usr/bin/env python3
"""Measures how long a training run in plain PyTorch waits for torch.save of the weights and the optimizer state.

  python benchmarks/peer/checkpoint.py --model resnet50 --dir /tmp

The JSON line has wait_ms_min, wait_ms_median, checkpoint_mb, peak_rss_mb, parameters, flops_per_image. The file is written under a
temporary name and renamed, as a careful program does; there is no fsync.
"""
import os
import pathlib
import tempfile

import torch

import common
from train import Training


def main():
    p = common.parser(__doc__)
    p.add_argument('--steps', type=common.natural, default=10, help='measured checkpoints (default: 10)')
    p.add_argument('--dir', type=pathlib.Path, help='the parent of a temporary folder for the checkpoints (default: TMPDIR)')
    p.set_defaults(batch=2, image=32)
    a = common.parse(p)
    a.data = None
    run = Training(a)
    run.step()  # creates the momentum
    with tempfile.TemporaryDirectory(prefix='peer_', dir=a.dir) as folder:
        part, complete = pathlib.Path(folder) / 'part.pt', pathlib.Path(folder) / 'last.pt'

        def save():
            torch.save({'model': run.model.state_dict(), 'optimizer': run.optimizer.state_dict()}, part)
            os.replace(part, complete)
        common.timed(a, save, 1)
        seconds = common.timed(a, save, a.steps)
        size = complete.stat().st_size
    common.report(a, wait_ms_min=1e3 * seconds[0], wait_ms_median=1e3 * common.percentile(seconds, 50),
                  checkpoint_mb=size / 2**20)


if __name__ == '__main__': main()
