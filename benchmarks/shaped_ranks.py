#!/usr/bin/env python3
"""Measures a training step of two ranks whose connection is slow, with and without overlap of communication and backward pass.

  sudo benchmarks/shaped_ranks.py [--bin build/bin] [--rate 100mbit] [--pairs 6] [--steps 5] [--batch 64] [CONFIG key=value ...]

Each rank runs in a network namespace of its own; a token bucket (tc-tbf) limits both ends of the link between them. The runs with
dist.overlap=true and false alternate. Prints the time of a step of each and, in the last line, the ratio of the shortest ones. Without
CONFIG it trains vit_tiny on 32x32 images. Needs root, and ip and tc of iproute2.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CONFIG = '''
seed: 7
device: cpu
precision: 32-true
model: {name: vit_tiny_cifar10}
optimizer: {name: adamw, lr: 0.001}
trainer: {threads: 1}
dist: {bucket_mib: 2}
'''
NAMES = [f'npu_train_{os.getpid()}_{rank}' for rank in range(2)]
ADDRESSES = ['10.231.7.1', '10.231.7.2']


def run(*command): subprocess.run([str(c) for c in command], check=True)


def connect(rate):
    ends = [f'npt{os.getpid() % 100000}{rank}' for rank in range(2)]
    for name in NAMES: run('ip', 'netns', 'add', name)
    run('ip', 'link', 'add', ends[0], 'netns', NAMES[0], 'type', 'veth', 'peer', 'name', ends[1], 'netns', NAMES[1])
    for name, address, end in zip(NAMES, ADDRESSES, ends, strict=True):
        run('ip', '-n', name, 'addr', 'add', f'{address}/24', 'dev', end)
        for device in ('lo', end): run('ip', '-n', name, 'link', 'set', device, 'up')
        run('tc', '-n', name, 'qdisc', 'add', 'dev', end, 'root', 'tbf', 'rate', rate, 'burst', '64kb', 'latency', '200ms')
    return ends


def disconnect():
    for name in NAMES: subprocess.run(['ip', 'netns', 'del', name], stderr=subprocess.DEVNULL, check=False)


def measure(args, ends, config, port, overlap):
    """The row of a run of both ranks: weak scaling, so each has the full batch."""
    ranks = []
    for rank, name in enumerate(NAMES):
        env = os.environ | {'RANK': str(rank), 'WORLD_SIZE': '2', 'LOCAL_RANK': '0', 'LOCAL_WORLD_SIZE': '1', 'MASTER_ADDR': ADDRESSES[0],
                            'MASTER_PORT': str(port), 'GLOO_SOCKET_IFNAME': ends[rank]}
        command = ['ip', 'netns', 'exec', name, args.bin / 'npu_tool', 'bench', *config, f'dist.overlap={str(overlap).lower()}', '--what',
                   'dist', '--no-machine', '--batch', args.batch, '--steps', args.steps, '--warmup', 2, '--json']
        ranks.append(subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.PIPE, text=True))
    out = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks): sys.exit(f'a rank ended with exit code {[rank.returncode for rank in ranks]}')
    return next(row for row in json.loads(out[0])['rows'] if row['name'].startswith('weak') and 'bucket' not in row['name'])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / 'build' / 'bin')
    parser.add_argument('--rate', default='100mbit')
    parser.add_argument('--pairs', type=int, default=6)
    parser.add_argument('--steps', type=int, default=5)
    parser.add_argument('--batch', type=int, default=64)
    parser.add_argument('config', nargs='*')
    args = parser.parse_args()
    for tool in ('ip', 'tc'):
        if shutil.which(tool) is None: sys.exit(f'{tool} is missing; install iproute2')
    if os.geteuid() != 0: sys.exit('only root may make network namespaces')
    times = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        config = args.config
        if not config:
            file = pathlib.Path(folder) / 'config.yaml'
            file.write_text(CONFIG)
            config = [file]
        try:
            ends = connect(args.rate)
            for pair in range(args.pairs):
                for k, overlap in enumerate((True, False) if pair % 2 == 0 else (False, True)):
                    row = measure(args, ends, config, 29500 + 2 * pair + k, overlap)
                    times[overlap].append(row['step_ms_min'])
                    print(f"overlap {str(overlap).lower():5}  step {row['step_ms_min']:.0f} ms, waiting for gradients "
                          f"{row['exposed_ms']:.0f} ms, hidden {row['share_hidden']:.0%}, sent {row['sent_bytes'] / 2**20:.1f} MiB", flush=True)
        finally: disconnect()
    with_overlap, without = min(times[True]), min(times[False])
    print(f'{with_overlap:.0f} ms with overlap, {without:.0f} ms without: {with_overlap / without:.3f}')


if __name__ == '__main__':
    main()
