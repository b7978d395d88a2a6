#!/usr/bin/env python3
"""Runs two commands alternately and compares numbers in the JSON documents that they print.

  benchmarks/paired.py --key step_ms_min --pairs 6 \\
      --ours 'build/bin/npu_tool bench --model resnet50 --image 224 --batch 16 --steps 4 --no-machine --json' \\
      --peer 'python benchmarks/peer/train.py --model resnet50 --image 224 --batch 16 --channels-last --steps 4'

The speed of a machine drifts by tens of percent, so single runs prove nothing. The order is 1 2 2 1 1 2 2 1. The output is the ratio of the
best results of both sides and a 95 % confidence interval of the pairwise ratios (sign test). There is no verdict if the interval contains 1
or if there are fewer than six pairs. A lower number is better unless --larger-is-better is given. scripts/bench_peer does this for a table
of such commands.
"""
import argparse
import dataclasses
import json
import math
import shlex
import statistics
import subprocess
import sys

LEAST_PAIRS = 6  # with fewer the sign test gives no 95 % interval


class Failed(Exception):
    """A command failed or did not print the number, or the two commands did different work."""


def lines_of_json(text):
    """All JSON objects that start at the beginning of a line and extend over one or more lines, the last one first."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at] == '{':
            try:
                value, at = decoder.raw_decode(text, at)
                found.append(value)
            except ValueError: pass
        at = text.find('\n', at) + 1
        if at == 0: break
    return found[::-1]


def document(command, row=None):
    """The document that the command printed. If `row` names a row in a report of npu_tool bench, its numbers are at the top level."""
    try: out = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error: raise Failed(f'{shlex.join(command)}: {error.strerror}') from None
    if out.returncode: raise Failed(f'{shlex.join(command)}: exit status {out.returncode}\n{out.stderr.strip()}')
    found = next(iter(lines_of_json(out.stdout)), None)
    if found is None: raise Failed(f'{shlex.join(command)}: no JSON in its output')
    if row is None: return found
    named = [r for r in found.get('rows', []) if r.get('name') == row]
    if not named: raise Failed(f'{shlex.join(command)}: no row {row!r} in its report')
    return found | named[0]


def number(found, key, command):
    value = found.get(key)
    if isinstance(value, (int, float)) and math.isfinite(value) and value > 0: return float(value)
    has = ', '.join(k for k, v in found.items() if isinstance(v, (int, float)) and not isinstance(v, bool))
    raise Failed(f'{shlex.join(command)}: {key} is {value!r}, but must be a number above 0; the numbers of the document are {has}')


def check_equal(keys, ours, peer):
    """Both sides must do the same work."""
    for key in keys:
        x, y = ours.get(key), peer.get(key)
        if x is None or x != y: raise Failed(f'not the same work: {key} is {x} on our side and {y} on the peer\'s; no result is valid')


def interleaved(one, other, pairs):
    """Yields the pairs of results. The order of the runs is 1 2 2 1, so that a drift of the machine affects both sides equally."""
    for i in range(pairs):
        if i % 2 == 0: yield one(), other()
        else:
            second = other()
            yield one(), second


def sign_test_rank(n):
    """The largest k such that k or fewer heads of n fair coins have a probability of at most 2.5 %; -1 if there is none."""
    below, k = 0.0, -1
    while (below := below + math.comb(n, k + 1) / 2**n) <= 0.025: k += 1
    return k


@dataclasses.dataclass(frozen=True)
class Ratio:
    """As npu_train::SpeedRatio: the ratio of the best results, and the 95 % confidence interval of the median of the pairwise ratios."""
    value: float
    median: float
    low: float
    high: float
    pairs: int

    @staticmethod
    def of(numerators, denominators, best=min):
        ratios = sorted(x / y for x, y in zip(numerators, denominators))
        rank = max(0, sign_test_rank(len(ratios)))
        return Ratio(best(numerators) / best(denominators), statistics.median(ratios), ratios[rank], ratios[-1 - rank], len(ratios))

    def verdict(self):
        """'above 1', 'below 1', 'no difference', 'too few pairs'."""
        if self.pairs < LEAST_PAIRS: return 'too few pairs'
        if self.low > 1 and self.value > 1: return 'above 1'
        if self.high < 1 and self.value < 1: return 'below 1'
        return 'no difference'

    def __str__(self):
        said = {'too few pairs': f', too few pairs ({self.pairs}) for a verdict', 'no difference': ', no difference beyond the scatter'}
        return f'{self.value:.3g} ({self.low:.3g} to {self.high:.3g}){said.get(self.verdict(), "")}'


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--ours', required=True, help='our command, quoted as one argument')
    p.add_argument('--peer', required=True, help="the peer's command, quoted as one argument")
    p.add_argument('--key', required=True, action='append', help='the number to compare; may be given several times')
    p.add_argument('--same', default=[], action='append', help='a key that must be equal on both sides; may be given several times')
    p.add_argument('--pairs', type=int, default=LEAST_PAIRS, help=f'runs of each side (default: {LEAST_PAIRS}, the minimum for a verdict)')
    p.add_argument('--larger-is-better', action='store_true', help='for example for a throughput')
    a = p.parse_args()
    if a.pairs < 1: p.error(f'--pairs {a.pairs}: must be at least 1, and at least {LEAST_PAIRS} for a verdict')
    commands = shlex.split(a.ours), shlex.split(a.peer)
    sides = {key: ([], []) for key in a.key}
    try:
        for i, found in enumerate(interleaved(*(lambda c=c: document(c) for c in commands), a.pairs)):
            check_equal(a.same, *found)
            for key in a.key:
                for side, have, command in zip(sides[key], found, commands): side.append(number(have, key, command))
            print(f'pair {i + 1}: ' + '  '.join(f'{k}: ours {x[-1]:.4g} peer {y[-1]:.4g}' for k, (x, y) in sides.items()), flush=True)
    except Failed as error: sys.exit(f'paired: {error}')
    best = max if a.larger_is_better else min
    for key, (x, y) in sides.items():
        print(f'{key}: best ours {best(x):.4g}  best peer {best(y):.4g}  ours/peer {Ratio.of(x, y, best)}')


if __name__ == '__main__': main()
