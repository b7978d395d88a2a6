#!/usr/bin/env python3
"""Measures training steps of several ranks over links of limited bandwidth: the points to which npu_tool plan is fitted.

  sudo benchmarks/plan_points.py CONFIG [key=value ...] --out points.csv [--bin build/bin] [--ranks 1,2,3,4] [--rates 100mbit,1gbit]
                                 [--strategies ddp,zero1,zero2,zero3] [--batch 13] [--repeats 3]

Each rank runs with one thread in a network namespace of its own; a bridge connects them, and a token bucket (tc-tbf) limits what each of
them sends. Repeats are interleaved, and each point is the shortest step of all. `load` is threads of all ranks divided by the cores. A
strategy may have dist options: ddp+dist.reduction=native. After each repeat all points so far are written. Needs root, and ip and tc of
iproute2.
"""
import argparse
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys

PREFIX = f'npp{os.getpid() % 100000}'
RATES = {'mbit': 'Mbit/s', 'gbit': 'Gbit/s'}


def run(*command): subprocess.run([str(c) for c in command], check=True)


def name_of(rank): return f'{PREFIX}_{rank}'


def connect(ranks):
    hub = name_of('hub')
    for name in [hub] + [name_of(r) for r in range(ranks)]: run('ip', 'netns', 'add', name)
    run('ip', '-n', hub, 'link', 'add', 'bridge', 'type', 'bridge')
    run('ip', '-n', hub, 'link', 'set', 'bridge', 'up')
    for r in range(ranks):
        run('ip', 'link', 'add', 'eth', 'netns', name_of(r), 'type', 'veth', 'peer', 'name', f'port{r}', 'netns', hub)
        run('ip', '-n', hub, 'link', 'set', f'port{r}', 'master', 'bridge')
        run('ip', '-n', hub, 'link', 'set', f'port{r}', 'up')
        run('ip', '-n', name_of(r), 'addr', 'add', f'10.231.8.{r + 1}/24', 'dev', 'eth')
        for device in ('lo', 'eth'): run('ip', '-n', name_of(r), 'link', 'set', device, 'up')


def shape(ranks, rate):
    for r in range(ranks):
        run('tc', '-n', name_of(r), 'qdisc', 'replace', 'dev', 'eth', 'root', 'tbf', 'rate', rate, 'burst', '256kb', 'latency', '400ms')


def disconnect(ranks):
    for r in [*range(ranks), 'hub']: subprocess.run(['ip', 'netns', 'del', name_of(r)], stderr=subprocess.DEVNULL, check=False)


def options_of(strategy):
    name, *options = strategy.split('+')
    return [f'trainer.strategy={name}', *options]


def measure(args, ranks, strategy, port):
    """Seconds of the shortest step."""
    started = []
    for r in range(ranks):
        env = os.environ | {'RANK': str(r), 'WORLD_SIZE': str(ranks), 'LOCAL_RANK': '0', 'LOCAL_WORLD_SIZE': '1',
                            'MASTER_ADDR': '10.231.8.1', 'MASTER_PORT': str(port), 'GLOO_SOCKET_IFNAME': 'eth', 'OMP_NUM_THREADS': '1'}
        command = ['ip', 'netns', 'exec', name_of(r), args.bin / 'npu_tool', 'bench', *args.config, 'trainer.threads=1',
                   *(options_of(strategy) if ranks > 1 else []), '--what', 'dist', '--no-machine', '--batch', args.batch, '--steps',
                   args.steps, '--warmup', 1, '--json']
        started.append(subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.PIPE, text=True))
    out = [p.communicate()[0] for p in started]
    if any(p.returncode != 0 for p in started): sys.exit(f'a rank ended with exit code {[p.returncode for p in started]}')
    rows = [row for row in json.loads(out[0])['rows'] if 'bucket' not in row['name'] and not row['name'].startswith('strong')]
    return rows[0]['step_ms_min'] / 1e3


def link_of(rate):
    digits = rate.rstrip('abcdefghijklmnopqrstuvwxyz')
    return digits + RATES[rate[len(digits):]]


def write(path, points, args):
    with open(path, 'w', newline='') as file:
        rows = csv.writer(file, lineterminator='\n')
        rows.writerow(['ranks', 'link', 'strategy', 'options', 'batch', 'load', 'seconds'])
        for (ranks, rate, strategy), seconds in points.items():
            name, *options = strategy.split('+')
            load = f'{ranks / os.cpu_count():.4g}'
            rows.writerow([ranks, link_of(rate), name, ' '.join(options), args.batch, load, f'{seconds:.5g}'])


def main():
    words = lambda text: text.split(',')  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', nargs='+')
    parser.add_argument('--out', required=True)
    parser.add_argument('--bin', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / 'build' / 'bin')
    parser.add_argument('--ranks', type=words, default=['1', '2', '3', '4'])
    parser.add_argument('--rates', type=words, default=['100mbit', '1gbit'])
    parser.add_argument('--strategies', type=words, default=['ddp', 'zero1', 'zero2', 'zero3'])
    parser.add_argument('--batch', type=int, default=13, help='a number that ranks do not divide, so that bench measures one row')
    parser.add_argument('--steps', type=int, default=4)
    parser.add_argument('--repeats', type=int, default=3)
    args = parser.parse_args()
    for tool in ('ip', 'tc'):
        if shutil.which(tool) is None: sys.exit(f'{tool} is missing; install iproute2')
    if os.geteuid() != 0: sys.exit('only root may make network namespaces')
    most = max(int(r) for r in args.ranks)
    points, port = {}, 29600
    try:
        connect(most)
        for repeat in range(args.repeats):
            for rate in args.rates:
                shape(most, rate)
                for ranks in (int(r) for r in args.ranks):
                    if ranks == 1 and rate != args.rates[0]: continue
                    for strategy in args.strategies if ranks > 1 else ['single']:
                        port += 1
                        seconds = measure(args, ranks, strategy, port)
                        key = (ranks, rate, strategy)
                        points[key] = min(seconds, points.get(key, seconds))
                        print(f'{repeat}: {ranks} ranks, {rate}, {strategy}: {seconds:.3f} s, shortest {points[key]:.3f} s', flush=True)
            write(args.out, points, args)
    finally: disconnect(most)


if __name__ == '__main__':
    main()
