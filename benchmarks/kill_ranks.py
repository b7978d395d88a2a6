#!/usr/bin/env python3
"""Kills a random rank of a training at a random time, again and again, and checks the result.

  benchmarks/kill_ranks.py [--bin build/bin] [--kills 100] [--ranks 3] [--stop] [--seed 1]

After each kill the launcher must end with exit code 9 and leave no process, and its message must name the rank; the run then continues from
its newest checkpoint. Prints the number of kills after which all of this held, and the longest time from a kill to the end of the launcher.
--stop sends SIGSTOP instead of SIGKILL: a rank that hangs. The time then includes dist.timeout (5 s here). Exits with 1 if anything failed.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = '''
seed: 7
device: cpu
deterministic: true
precision: 32-true
model: {name: vit_tiny_cifar10, depth: 2, dim: 32, heads: 2, patch_size: 8}
data: {name: generated, train_size: 480, val_size: 50, batch_size: 8, num_workers: 0}
optimizer: {name: adamw, lr: 0.002}
trainer: {max_epochs: 100000, threads: 1}
checkpoint: {every_n_train_steps: 7}
dist: {timeout: 5}
'''
PEER = 9


def processes():
    """(process, parent, environment) of all processes that can be read."""
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            parent = int((path / 'stat').read_text().rpartition(')')[2].split()[1])
            environment = (path / 'environ').read_bytes().decode(errors='replace').split('\0')
        except OSError: continue
        yield int(path.name), parent, dict(e.split('=', 1) for e in environment if '=' in e)


def ranks_of(launcher): return {int(env['RANK']): pid for pid, parent, env in processes() if parent == launcher and 'RANK' in env}


def left_behind(mark): return [pid for pid, _, env in processes() if env.get('KILL_RANKS') == mark]


class Failed(Exception):
    """Something that must hold after a kill does not."""


def checkpoint_step(out):
    steps = []
    for path in pathlib.Path(out).glob('*/version_*/checkpoints/epoch=*/manifest.json'):
        try: steps.append(json.loads(path.read_text())['global_step'])
        except OSError: pass  # just removed
    return max(steps, default=0)


def one_kill(args, folder, number, draw):
    """Seconds from the kill to the end of the launcher."""
    mark, before = f'{os.getpid()}-{number}', checkpoint_step(folder / 'out')
    said = folder / 'said.txt'
    with open(said, 'w') as file:
        launcher = subprocess.Popen([args.bin / 'train_app', folder / 'c.yaml', f'output.dir={folder}/out', '--resume', 'auto', '--nproc',
                                     str(args.ranks)], env=os.environ | {'KILL_RANKS': mark}, stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=file)
        try:
            while checkpoint_step(folder / 'out') <= before:
                if launcher.poll() is not None: raise Failed(f'the run ended before its next checkpoint:\n{said.read_text()}')
                time.sleep(0.01)
            time.sleep(draw.random())
            victim = draw.randrange(args.ranks)
            os.kill(ranks_of(launcher.pid)[victim], signal.SIGSTOP if args.stop else signal.SIGKILL)
            start = time.monotonic()
            code = launcher.wait(timeout=120)
            seconds = time.monotonic() - start
        finally:
            if launcher.poll() is None: launcher.kill()
    text = said.read_text()
    if code != PEER: raise Failed(f'exit code {code} instead of {PEER}:\n{text}')
    if f'rank {victim}' not in text: raise Failed(f'no message names rank {victim}:\n{text}')
    if left := left_behind(mark): raise Failed(f'processes are left: {left}')
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / 'build' / 'bin')
    parser.add_argument('--kills', type=int, default=100)
    parser.add_argument('--ranks', type=int, default=3)
    parser.add_argument('--stop', action='store_true')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    draw, seconds, failures = random.Random(args.seed), [], 0
    with tempfile.TemporaryDirectory(prefix='npu_train_') as name:
        folder = pathlib.Path(name)
        (folder / 'c.yaml').write_text(CONFIG)
        for number in range(args.kills):
            try: seconds.append(one_kill(args, folder, number, draw))
            except (Failed, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f'kill {number}: {error}', file=sys.stderr)
        print(f'{len(seconds)} of {args.kills} as they must be; longest {max(seconds, default=0):.2f} s, '
              f'{checkpoint_step(folder / "out")} steps were saved')
    return 1 if failures else 0


if __name__ == '__main__': sys.exit(main())
