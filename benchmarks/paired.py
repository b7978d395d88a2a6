#!/usr/bin/env python3
"""Runs two commands in turn and compares one number of the JSON line that each prints last.

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


def number(command, key):
    out = subprocess.run(shlex.split(command), capture_output=True, text=True)
    if out.returncode: sys.exit(f'{command}\n{out.stderr}')
    documents = [out.stdout[out.stdout.index('{'):], *reversed(re.findall(r'^\{.*\}$', out.stdout, re.M))]
    for text in documents:
        try: return float(json.loads(text)[key])
        except (ValueError, KeyError): continue
    sys.exit(f'{command}: no JSON with the key {key}')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--ours', required=True)
    p.add_argument('--peer', required=True)
    p.add_argument('--key', required=True)
    p.add_argument('--peer-key', help='where the peer calls it otherwise')
    p.add_argument('--pairs', type=int, default=5)
    p.add_argument('--larger-is-better', action='store_true')
    a = p.parse_args()
    ours, peer = [], []
    for i in range(a.pairs):
        for side, command, key in ((ours, a.ours, a.key), (peer, a.peer, a.peer_key or a.key)):
            side.append(number(command, key))
        print(f'pair {i + 1}: ours {ours[-1]:.4g}  peer {peer[-1]:.4g}', flush=True)
    best = max if a.larger_is_better else min
    ratios = sorted(x / y for x, y in zip(ours, peer))
    print(f'best: ours {best(ours):.4g}  peer {best(peer):.4g}  ours/peer {best(ours) / best(peer):.3f}')
    print(f'pair by pair: {ratios[0]:.3f} ... {statistics.median(ratios):.3f} ... {ratios[-1]:.3f}')


if __name__ == '__main__': main()
