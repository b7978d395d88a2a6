#!/usr/bin/env python3
"""Runs two commands in turn and compares numbers of the JSON line that each prints last.

  benchmarks/paired.py --key step_ms_min --pairs 5 \\
      --ours 'build/bin/npu_tool bench --model resnet50 --image 224 --batch 16 --what step --steps 4 --json' \\
      --peer 'python peer_train.py --model resnet50 --image 224 --batch 16 --channels-last --steps 4'

A machine's speed drifts by tens of percent, so single runs say nothing: what counts is the ratio of the best of each side over runs in
turn, printed beside the spread of the ratios pair by pair. A lower number is better unless --larger-is-better.
"""
import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys


def document(command, keys):
    out = subprocess.run(shlex.split(command), capture_output=True, text=True)
    if out.returncode: sys.exit(f'{command}\n{out.stderr}')
    for text in [out.stdout[out.stdout.index('{'):], *reversed(re.findall(r'^\{.*\}$', out.stdout, re.M))]:
        try:
            found = json.loads(text)
            return {key: float(found[key]) for key in keys}
        except (ValueError, KeyError): continue
    sys.exit(f'{command}: no JSON with the keys {keys}')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--ours', required=True)
    p.add_argument('--peer', required=True)
    p.add_argument('--key', required=True, action='append', help='may be given several times')
    p.add_argument('--pairs', type=int, default=5)
    p.add_argument('--larger-is-better', action='store_true')
    a = p.parse_args()
    ours, peer = [], []
    for i in range(a.pairs):
        ours.append(document(a.ours, a.key))
        peer.append(document(a.peer, a.key))
        print(f'pair {i + 1}: ' + '  '.join(f'{k}: ours {ours[-1][k]:.4g} peer {peer[-1][k]:.4g}' for k in a.key), flush=True)
    best = max if a.larger_is_better else min
    for key in a.key:
        x, y = [d[key] for d in ours], [d[key] for d in peer]
        ratios = sorted(p / q for p, q in zip(x, y))
        print(f'{key}: best ours {best(x):.4g}  best peer {best(y):.4g}  ours/peer {best(x) / best(y):.3f}; '
              f'pair by pair {ratios[0]:.3f} ... {statistics.median(ratios):.3f} ... {ratios[-1]:.3f}')


if __name__ == '__main__': main()
