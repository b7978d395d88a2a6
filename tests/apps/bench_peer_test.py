"""scripts/bench_peer and benchmarks/paired.py: a measured row, rejected rows, errors. No result of a measurement is tested."""
import importlib.util
import json
import os
import shlex
import stat
import sys
import unittest

from programs import BIN, SOURCE, ProgramTest, main, npu_tool, run

sys.path[:0] = [str(SOURCE / 'benchmarks'), str(SOURCE / 'benchmarks' / 'peer')]
import paired  # noqa: E402
import record  # noqa: E402
import rows  # noqa: E402

USAGE, NOTHING, FAILED = 2, 77, 1
TORCH = unittest.skipUnless(importlib.util.find_spec('torch'), 'this Python has no torch')
HERE = {'device': 'cpu', 'cifar': True, 'torchvision': True, 'bf16_units': False, 'taskset': True, 'python': 'python'}


def bench_peer(*args): return run(SOURCE / 'scripts' / 'bench_peer', '--bin', BIN, '--python', sys.executable, *args)


class BenchPeer(ProgramTest):
    def pair(self, row): return next(pair for pair in rows.PAIRS if row in pair.rows())

    @TORCH
    def test_a_row(self):
        file = self.dir / 'peer.json'
        out = self.assertDone(bench_peer('--rows', 'p2', '--pairs', '1', '--threads', '1', '--out', file, '--markdown'))
        document = record.read(file)
        row, = document['rows']
        self.assertEqual((row['row'], row['pairs'], row['verdict']), ('P2', 1, 'too few pairs'))
        self.assertEqual(row['ratio'], row['ours'][0] / row['peer'][0])
        self.assertEqual(row['equal_on_both_sides']['parameters'], 5362762)
        self.assertIn('per multiply-add', row['equal_on_both_sides']['flops_are'])
        for words in row['commands'].values(): self.assertEqual(shlex.split(words)[-2:], ['--threads', '1'])
        self.assertGreater(document['environment']['cores'], 0)
        for word in ('| P2 |', 'too few pairs', f'torch {document["environment"]["torch"]}'): self.assertIn(word, out)
        self.assertIn(self.assertDone(bench_peer('--show', file)).strip(), out)

    @TORCH
    def test_different_work_is_refused(self):
        file = self.dir / 'peer.json'
        result = bench_peer('--rows', 'P2', '--pairs', '1', '--ours', 'model.num_classes=11', '--out', file, '--markdown')
        self.assertFails(result, FAILED, 'not the same work', "parameters is 5362955 on our side and 5362762 on the peer's")
        document = json.loads(file.read_text())
        self.assertEqual((document['rows'], document['failed'][0]['rows']), ([], ['P2']))
        self.assertNotIn('|', result[1])

    @TORCH
    def test_both_sides_count_alike(self):
        out = self.assertDone(run(sys.executable, SOURCE / 'benchmarks' / 'peer' / 'models.py'))
        for line in out.splitlines():
            peer = json.loads(line)
            ours = json.loads(self.assertDone(npu_tool('summary', '--model', peer['model'], '--json')))
            with self.subTest(peer['model']):
                for key in rows.SAME_MODEL: self.assertEqual(ours[key], peer[key])

    @TORCH
    def test_what_fails_is_told(self):
        result = bench_peer('--rows', 'P2', '--pairs', '1', '--ours', 'trainer.no_such_key=1')
        self.assertFails(result, FAILED, 'failed: P2', 'npu_tool bench', 'no_such_key')
        self.assertFails(bench_peer('--rows', 'P21', '--device', 'cpu'), NOTHING, 'skipped: P21', '--device cuda')

    @TORCH
    def test_list_measures_nothing(self):
        out = self.assertDone(bench_peer('--list'))
        for row in rows.ROWS: self.assertEqual(f'  {row}: ' in out, row not in ('P21', 'P22', 'P23'), row)

    def test_mistakes(self):
        self.assertFails(bench_peer('--rows', 'P2,P99'), USAGE, 'P99', 'no such row', 'P17')
        self.assertFails(bench_peer('--rows', ','), USAGE, 'no such row')
        self.assertFails(bench_peer('--pairs', '0'), USAGE, "'0' is not a positive integer")
        self.assertFails(bench_peer('--bin', self.dir), USAGE, f'{self.dir}/npu_tool does not exist', 'scripts/setup')
        self.assertFails(bench_peer('--out', self.dir / 'no' / 'x.json'), USAGE, 'x.json', f'no folder {self.dir}/no')
        self.assertFails(bench_peer('--out', self.dir), USAGE, f'--out {self.dir}', 'is a folder')
        self.assertEqual(list(self.dir.parent.glob(self.dir.name + '.part')), [])
        self.assertFails(bench_peer('--data', self.dir), USAGE, str(self.dir), 'data_batch_1.bin', 'scripts/get_data')
        self.assertFails(bench_peer('--jpegs', self.dir), USAGE, str(self.dir), 'DIR/train/<class>')
        self.assertFails(bench_peer('--python', self.dir / 'python'), USAGE, f'{self.dir}/python', 'No such file')
        bare = self.dir / 'bare'
        bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S "$@"\n')
        bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
        self.assertFails(bench_peer('--python', bare), USAGE, f'{bare} has no torch', 'scripts/setup', '--python')
        self.assertFails(bench_peer('--show', self.dir / 'none.json'), USAGE, 'none.json')
        for text in ('{"rows": []}', '[]', '3', '{"format": "npu_train peer 1"}', '{"format": "npu_train peer 1", "environment": 4, "rows": []}'):
            (self.dir / 'other.json').write_text(text)
            self.assertFails(bench_peer('--show', self.dir / 'other.json'), USAGE, 'other.json', 'not written by scripts/bench_peer')

    def test_what_is_missing_is_named(self):
        for row, lacks, word in (('P3', {'cifar': False}, 'scripts/get_data cifar10'), ('P5', {'torchvision': False}, 'pip install'),
                                 ('P4', {'taskset': False}, 'util-linux'), ('P10', {}, 'units for bf16'),
                                 ('P7', {'bf16_units': True}, 'P10'),
                                 ('P23', {}, '--device cuda'), ('P17', {'device': 'cuda'}, '--device cpu')):
            with self.subTest(row):
                why, = rows.missing(self.pair(row), HERE | lacks)
                self.assertIn(word, why)
        for row in ('P3', 'P4', 'P5', 'P7', 'P17'): self.assertEqual(rows.missing(self.pair(row), HERE), [])
        self.assertEqual(rows.missing(self.pair('P22'), HERE | {'device': 'cuda'}), [])


class Paired(ProgramTest):
    """A side is a program that records its name and prints the next of its numbers."""

    def side(self, name, numbers, **more):
        path = self.dir / f'{name}.py'
        path.write_text(f'''import json, pathlib
said = pathlib.Path({str(self.dir / "said")!r})
before = said.read_text() if said.exists() else ''
said.write_text(before + {name!r})
print('{{not JSON}}')
print(json.dumps({{'t': {numbers!r}[before.count({name!r})], **{more!r}}}))
''')
        return shlex.join([sys.executable, str(path)])

    def paired(self, *args): return run(sys.executable, SOURCE / 'benchmarks' / 'paired.py', '--key', 't', *args)

    def test_order(self):
        ours, peer = self.side('a', [1, 2, 3, 4]), self.side('b', [2, 4, 6, 8])
        out = self.assertDone(self.paired('--ours', ours, '--peer', peer, '--pairs', '4'))
        self.assertEqual((self.dir / 'said').read_text(), 'abbaabba')
        self.assertIn('pair 4: t: ours 4 peer 8', out)
        self.assertIn('ours/peer 0.5 (0.5 to 0.5), too few pairs (4) for a verdict', out)

    def test_refusals(self):
        ours, peer = self.side('a', [1] * 9, n=3), self.side('b', [1] * 9, n=4)
        both = ('--ours', ours, '--peer', peer, '--pairs', '1')
        self.assertFails(self.paired(*both, '--same', 'n'), FAILED, "not the same work: n is 3 on our side and 4 on the peer's")
        self.assertFails(self.paired(*both, '--same', 'm'), FAILED, 'm is None')
        self.assertFails(self.paired(*both, '--key', 'u'), FAILED, 'u is None', 'the numbers of the document are t, n')
        self.assertFails(self.paired('--ours', 'false', '--peer', peer), FAILED, 'false: exit status 1')
        self.assertFails(self.paired('--ours', f'{self.dir}/none', '--peer', peer), FAILED, 'No such file')
        self.assertFails(self.paired('--ours', 'echo 3', '--peer', peer), FAILED, 'no JSON')
        self.assertFails(self.paired(*both[:4], '--pairs', '0'), USAGE, '--pairs 0')

    def test_ranks(self):
        for n, rank in ((5, -1), (6, 0), (10, 1), (20, 5), (1500, 711)): self.assertEqual(paired.sign_test_rank(n), rank)

    def test_verdicts(self):
        ones = [1.0] * 6
        for times, verdict in (([0.5, 0.6, 0.7, 0.8, 0.9, 0.95], 'below 1'), ([0.5, 0.6, 0.7, 0.8, 0.9, 1.05], 'no difference'),
                               ([1.5, 1.6, 1.7, 1.8, 1.9, 1.1], 'above 1'), ([0.5] * 5, 'too few pairs')):
            self.assertEqual(paired.Ratio.of(times, ones[:len(times)]).verdict(), verdict)
        # Binomial tables: n coins have k or fewer heads in at most 2.5 % of the cases.
        for n, k in ((5, -1), (6, 0), (9, 1), (12, 2), (20, 5), (50, 17), (1, -1)): self.assertEqual(paired.sign_test_rank(n), k)
        # The ratio of the best results contradicts the pairs.
        self.assertEqual(paired.Ratio.of([2, 2, 2, 2, 2, 0.5], [3, 3, 3, 3, 3, 0.6]).verdict(), 'below 1')
        self.assertEqual(paired.Ratio.of([2, 2, 2, 2, 2, 1.0], [3, 3, 3, 3, 1.2, 0.9][::-1]).verdict(), 'no difference')

    def test_directions(self):
        faster = [rows.time('P17'), ([1.0] * 6, [2.0] * 6)]
        more_images = [rows.speed('P3'), ([4.0] * 6, [2.0] * 6)]
        less_memory = [rows.memory('P6'), ([50.0] * 6, [100.0] * 6)]
        for (figure, sides), ratio, verdict in ((faster, 2, 'faster'), (more_images, 2, 'faster'), (less_memory, 0.5, 'less')):
            pair = next(p for p in rows.PAIRS if figure.row in p.rows())
            row = record.row_of(pair, figure, *sides, [{}, {}], {})
            self.assertEqual((row['ratio'], row['verdict']), (ratio, verdict))


class Rows(unittest.TestCase):
    def test_commands(self):
        places = {'root': '/r', 'npu_tool': '/b/npu_tool', 'python': 'py', 'cifar': '/my data', 'jpegs': '/j'}
        how = {'device': 'cpu', 'steps': 0, 'warmup': 3, 'threads': 2, 'core': 5, 'ours': ['a.b=c'], 'peer': ['--compile']}
        for pair in rows.PAIRS:
            for side, last in zip(rows.commands(pair, places, how), ('a.b=c', '--compile')):
                self.assertEqual(side[-1], last)
                self.assertNotIn('{', ' '.join(side))
        pair = next(p for p in rows.PAIRS if p.rows() == ['P4'])
        ours, peer = rows.commands(pair, places, how)
        self.assertEqual((ours[:5], peer[:4]), (['taskset', '-c', '5', '/b/npu_tool', 'bench'], ['taskset', '-c', '5', 'py']))
        self.assertIn('data.root=/my data', ours)
        self.assertEqual((ours + peer).count('--threads'), 2)

    def test_every_program_and_configuration_is_there(self):
        for pair in rows.PAIRS:
            self.assertTrue((SOURCE / 'benchmarks' / 'peer' / pair.peer.split()[0]).exists(), pair.peer)
            for word in pair.ours.split():
                if word.startswith('{root}'): self.assertTrue(os.path.exists(word.replace('{root}', str(SOURCE))), word)


if __name__ == '__main__': main()
