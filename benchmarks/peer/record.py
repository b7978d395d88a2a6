"""The results of scripts/bench_peer: the JSON document and the table of README.md and docs/performance.md."""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

from paired import LEAST_PAIRS, Ratio

FORMAT = 'npu_train peer 1'
UNITS = {'step_ms_min': 'ms', 'latency_ms_p50': 'ms', 'wait_ms_median': 'ms', 'first_step_s': 's', 'samples_per_s': 'samples/s',
         'peak_rss_mb': 'MiB'}
VERDICTS = {('speed', 'above 1'): 'faster', ('speed', 'below 1'): 'slower', ('share', 'above 1'): 'more', ('share', 'below 1'): 'less'}


def environment(root, versions):
    """The machine, the versions of its software, and the date."""
    cpu = re.search(r'^model name\s*: (.*)', cpuinfo(), re.M)
    return {'cpu': cpu[1] if cpu else platform.processor() or platform.machine(), 'cores': len(os.sched_getaffinity(0)),
            'memory_gib': round(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30, 1), 'kernel': platform.release(),
            'python': versions.pop('python'), **versions, 'npu_train': commit(root), 'load_before': round(os.getloadavg()[0], 2),
            'date': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')}


def cpuinfo():
    try: return pathlib.Path('/proc/cpuinfo').read_text()
    except OSError: return ''


def commit(root):
    def git(*words):
        try: return subprocess.run(['git', '-C', root, *words], capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError): return None
    name = git('rev-parse', '--short', 'HEAD')
    return 'unknown' if name is None else f'{name} with changes' if git('status', '--porcelain', '--untracked-files=no') else name


def row_of(pair, figure, ours, peer, found, commands):
    """A row of the document. `found` contains both documents of the last pair."""
    ratio = Ratio.of(*figure.sides(ours, peer), figure.best())
    facts = {key: found[1][key] for key in (*pair.same, 'flops_are') if key in found[1]}
    return {'row': figure.row, 'work': pair.work, 'against': pair.against, 'key': figure.key, 'says': figure.says,
            'best_ours': figure.best()(ours), 'best_peer': figure.best()(peer), 'ratio': ratio.value, 'median': ratio.median,
            'low': ratio.low, 'high': ratio.high, 'pairs': ratio.pairs,
            'verdict': VERDICTS.get((figure.says, ratio.verdict()), ratio.verdict()), 'ours': ours, 'peer': peer,
            'equal_on_both_sides': facts, 'commands': commands}


def value(key, number): return f'{number:,.0f} {UNITS[key]}' if number >= 1000 else f'{number:.3g} {UNITS[key]}'


def verdict(row):
    """'1.38 times as fast (1.3 to 1.42)', '0.78 of its memory (...)', '1.02, no difference beyond the scatter (...)'."""
    what = 'times as fast' if row['says'] == 'speed' else 'of its memory' if row['key'] == 'peak_rss_mb' else 'of its time'
    between = f' ({row["low"]:.3g} to {row["high"]:.3g})'
    if row['verdict'] == 'too few pairs': return f'{row["ratio"]:.3g} {what}, too few pairs ({row["pairs"]}) for a verdict'
    if row['verdict'] == 'no difference': return f'{row["ratio"]:.3g}, no difference beyond the scatter{between}'
    return f'{row["ratio"]:.3g} {what}{between}'


def text_row(row):
    return (f'{row["row"]} {row["work"]}, against {row["against"]}: {verdict(row)}; '
            f'{row["key"]} at best {value(row["key"], row["best_ours"])}, the peer {value(row["key"], row["best_peer"])}')


def markdown(document):
    e = document['environment']
    lines = ['| row | work | PyTorch | ours | PyTorch\'s | ours against PyTorch | pairs |', '|---|---|---|---|---|---|---|']
    for row in document['rows']:
        work = row['work'] + (': peak memory' if row['key'] == 'peak_rss_mb' else '')
        ours, peer = value(row['key'], row['best_ours']), value(row['key'], row['best_peer'])
        lines.append(f'| {row["row"]} | {work} | {row["against"]} | {ours} | {peer} | {verdict(row)} | {row["pairs"]} |')
    gpu = f', {e["gpu"]}' if e.get('gpu') else ''
    lines += ['', f'{e["cpu"]}, {e["cores"]} cores{gpu}; torch {e["torch"]}; npu_train {e["npu_train"]}; {e["date"][:10]}. '
              f'Best of each side; in parentheses the 95 % interval of the pairwise ratios (none with fewer than {LEAST_PAIRS} pairs).']
    return '\n'.join(lines)


def part_of(path): return path.with_name(path.name + '.part')


def check_writable(path):
    """Raises OSError if save() would fail."""
    if path.is_dir(): raise IsADirectoryError(21, 'is a folder; name a file')
    part_of(path).write_text('')
    part_of(path).unlink()


def save(document, path):
    """Replaces the file in one step, so that it is always complete."""
    part = part_of(path)
    part.write_text(json.dumps(document, indent=1) + '\n')
    os.replace(part, path)


def read(path):
    """Raises ValueError if the file is not such a document."""
    try:
        document = json.loads(pathlib.Path(path).read_text())
        if document['format'] == FORMAT and markdown(document): return document
    except (ValueError, KeyError, TypeError, AttributeError): pass
    raise ValueError(f'{path}: not written by scripts/bench_peer --out')
