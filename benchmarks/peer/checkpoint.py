#!/usr/bin/env python3
"""How long a training of plain PyTorch waits for torch.save of weights and optimizer.

  python benchmarks/peer/checkpoint.py --model resnet50 --dir /tmp

The JSON line has wait_ms_min, wait_ms_median, checkpoint_mb, peak_rss_mb, parameters, flops_per_image. The file is written beside its name
and renamed, as a careful program does; nothing waits for the disk itself.
"""
import os
import pathlib
import tempfile

import torch

import common
from train import Training


def main():
    p = common.parser(__doc__)
    p.add_argument('--steps', type=common.natural, default=10, help='checkpoints that count')
    p.add_argument('--dir', type=pathlib.Path, help='where a temporary folder for them is made (TMPDIR)')
    p.set_defaults(batch=2, image=32)
    a = common.parse(p)
    a.data = None
    run = Training(a)
    run.step()  # so that there is momentum
    with tempfile.TemporaryDirectory(prefix='peer_', dir=a.dir) as folder:
        part, whole = pathlib.Path(folder) / 'part.pt', pathlib.Path(folder) / 'last.pt'

        def save():
            torch.save({'model': run.model.state_dict(), 'optimizer': run.optimizer.state_dict()}, part)
            os.replace(part, whole)
        common.timed(a, save, 1)
        seconds = common.timed(a, save, a.steps)
        size = whole.stat().st_size
    common.report(a, wait_ms_min=1e3 * seconds[0], wait_ms_median=1e3 * common.percentile(seconds, 50),
                  checkpoint_mb=size / 2**20)


if __name__ == '__main__': main()
