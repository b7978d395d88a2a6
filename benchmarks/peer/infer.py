#!/usr/bin/env python3
"""Measures predictions in plain PyTorch, in eval mode and inference mode.

  python benchmarks/peer/infer.py --model resnet50 --batch 1 --channels-last
  python benchmarks/peer/infer.py --model vit_b16 --batch 32 --precision bf16-mixed

The JSON line has latency_ms_p50, latency_ms_p95, latency_ms_p99, latency_ms_min, samples_per_s (of the median), peak_rss_mb, parameters,
flops_per_image.
"""
import torch

import common


def main():
    p = common.parser(__doc__)
    p.add_argument('--steps', type=common.natural, default=200, help='measured predictions (default: 200)')
    p.add_argument('--warmup', type=common.natural, default=10, help='predictions before the measured ones (default: 10)')
    a = common.parse(p)
    model, forward = common.network(a)
    model.eval()
    images = common.random_images(a)

    def predict():
        with torch.inference_mode(), common.autocast(a): return forward(images.to(a.device, non_blocking=True))
    common.timed(a, predict, a.warmup)
    seconds = common.timed(a, predict, a.steps)
    latency = {f'latency_ms_p{q}': 1e3 * common.percentile(seconds, q) for q in (50, 95, 99)}
    common.report(a, **latency, latency_ms_min=1e3 * seconds[0], samples_per_s=a.batch / common.percentile(seconds, 50))


if __name__ == '__main__': main()
