"""npu_tool bench --what dist: worlds of ranks, as processes."""
import json
import os
import pathlib
import signal
import subprocess
import time

from programs import BIN, ProgramTest, main, needs_sim_npu, npu_tool, run

USAGE = 2
CONFIG = '''
device: cpu
precision: 32-true
model: {name: vit_tiny_cifar10, depth: 2, dim: 32, heads: 2, patch_size: 8}
optimizer: {name: adamw, lr: 0.002}
dist: {bucket_mib: 0.02}
'''
FAST = ('--what', 'dist', '--batch', '8', '--steps', '4', '--warmup', '1')


def cpu_seconds_of_ranks(parent):
    """The CPU time of the processes that `parent` has started."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try: fields = path.read_text().rpartition(')')[2].split()
        except OSError: continue
        if int(fields[1]) == parent: found.append((int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK'))
    return found


class BenchDist(ProgramTest):
    def report(self, *args, code=0):
        result = npu_tool('bench', self.config(CONFIG), *FAST, *args, '--json')
        self.assertEqual(result[0], code, result[1] + result[2])
        return json.loads(result[1])

    def test_worlds(self):
        trace, page = self.dir / 'trace.json', self.dir / 'page.html'
        report = self.report('--nproc', '1,2,3', '--trace', trace, '--html', page)
        rows = {row['name']: row for row in report['rows'] if row['section'] == 'dist'}
        for name in ('1 rank x batch 8', 'weak, 2 ranks x batch 8', 'strong, 2 ranks x batch 4', 'weak, 3 ranks x batch 8'): self.assertIn(name, rows)
        self.assertNotIn('sent_bytes', rows['1 rank x batch 8'])
        self.assertTrue(any('3 ranks was omitted' in note for note in report['notes']), report['notes'])
        for ranks in (2, 3):
            name = f'weak, {ranks} ranks x batch 8'
            row, buckets = rows[name], [r for n, r in rows.items() if n.startswith(f'{name}, bucket')]
            self.assertGreater(len(buckets), 3)
            # Ordered sums send all but 1/N of the padded gradients, twice.
            padded = row['sent_bytes'] * ranks / (ranks - 1) / 2
            self.assertEqual(padded % (256 * ranks), 0)
            self.assertGreaterEqual(padded, 4 * report['parameters'])
            self.assertLess(padded, 4 * report['parameters'] + len(buckets) * 256 * ranks + 256 * 40)
            self.assertEqual(sum(b['sent_bytes'] for b in buckets), row['sent_bytes'])
            for b in buckets:
                self.assertGreaterEqual(b['sent_at_ms'], 0)
                self.assertGreater(b['arrived_at_ms'], b['sent_at_ms'])
            self.assertGreater(row['share_hidden'], 0)
            self.assertLessEqual(row['share_hidden'], 1)
            self.assertGreater(row['communication_ms'], 0)
            self.assertAlmostEqual(row['efficiency'], row['samples_per_s'] / rows['1 rank x batch 8']['samples_per_s'] / ranks, places=6)
        events = json.loads(trace.read_text())['traceEvents']
        self.assertEqual({e['pid'] for e in events}, {0, 1, 2})  # the ranks of the largest world
        for rank in range(3):
            spans = [e for e in events if e['pid'] == rank and e['ph'] == 'X']
            self.assertIn('backward', {e['name'] for e in spans})
            self.assertGreaterEqual(sum(e['name'].startswith('bucket') for e in spans), 2 * 4)
        self.assertIn('Throughput by ranks', page.read_text())

    def test_without_overlap_nothing_is_hidden(self):
        rows = self.report('--nproc', '2', 'dist.overlap=false')['rows']
        for row in rows:
            if 'share_hidden' in row: self.assertEqual(row['share_hidden'], 0)
        self.assertEqual(sum('share_hidden' in row for row in rows), 2)

    def test_parameters_in_shards(self):
        report = self.report('--nproc', '2', 'trainer.strategy=zero3')
        self.assertGreater(report['flops_per_image'], 0)
        row = next(r for r in report['rows'] if r['name'] == 'weak, 2 ranks x batch 8')
        self.assertGreater(row['sent_bytes'], report['parameters'] * 4 / 2)

    def test_ranks_of_another_launcher(self):
        code, out, err = run(BIN / 'npu_tool', 'launch', '--nproc', '2', '--', BIN / 'npu_tool', 'bench', self.config(CONFIG), *FAST, '--json')
        self.assertEqual(code, 0, err)
        self.assertIn('weak, 2 ranks x batch 8', [row['name'] for row in json.loads(out)['rows']])  # a single JSON document
        self.assertFails(run(BIN / 'npu_tool', 'launch', '--nproc', '2', '--', BIN / 'npu_tool', 'bench', self.config(CONFIG), '--what',
                             'dist,step'), USAGE, '--what dist alone')

    @needs_sim_npu
    def test_a_world_that_fails_is_a_row(self):
        report = self.report('--nproc', '3,2', 'device=sim_npu', 'sim_npu.soc=910A', code=USAGE)
        self.assertEqual(report['rows'][-1]['name'], '3 ranks')
        self.assertIn('exit code 2', report['rows'][-1]['failure'])
        self.assertIn('weak, 2 ranks x batch 8', [row['name'] for row in report['rows']])

    def test_stages(self):
        config = self.config(CONFIG + 'data: {name: generated, batch_size: 8}\n')
        page = self.dir / 'stages.html'
        code, out, err = npu_tool('bench', config, '--what', 'stages', '--nproc', '2', '--seeds', '1', '--steps', '4', '--warmup', '3', '--html',
                                  page, '--json')
        self.assertEqual(code, 0, out + err)
        rows = [row for row in json.loads(out)['rows'] if row['section'] == 'stages']
        self.assertEqual([row['name'].split(' ', 1)[1] for row in rows],
                         ['baseline', '+ sharding', '+ mixed precision', '+ fusion', '+ communication'])
        for row in rows:
            self.assertNotIn('failure', row)
            self.assertEqual((row['ranks'], row['batch'], row['seeds'], row['diverged']), (2, 8, 1, 0))
            self.assertAlmostEqual(row['speedup'], rows[0]['step_ms_median'] / row['step_ms_median'], places=6)
            for key in ('share_communication', 'share_exposed', 'share_of_products', 'share_of_copies', 'share_of_link', 'memory_bytes'):
                self.assertGreater(row[key], 0)
            self.assertLess(row['share_exposed'], 1)
        # Half of the parameters and gradients are sent with ddp, and half of the parameters with zero2. The gradients of the last stage are
        # compressed.
        self.assertEqual(rows[0]['sent_bytes'], rows[1]['sent_bytes'])
        self.assertLess(rows[4]['sent_bytes'], rows[3]['sent_bytes'])
        # Shards change no bit; lower precision does.
        self.assertEqual(rows[0]['loss'], rows[1]['loss'])
        self.assertNotEqual(rows[1]['loss'], rows[2]['loss'])
        self.assertIn('Atlas 300I/V Pro', page.read_text())

    def test_an_interrupted_table_has_what_was_measured(self):
        config = self.config(CONFIG + 'data: {name: generated, batch_size: 8}\n')
        words = [BIN / 'npu_tool', 'bench', config, '--what', 'stages', '--nproc', '2', '--steps', '1000000', '--json']
        process = self.ended(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        while process.poll() is None and sum(seconds > 1.5 for seconds in cpu_seconds_of_ranks(process.pid)) < 2: time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 130, err)
        report = json.loads(out)
        self.assertTrue(any('interrupted' in note for note in report['notes']), report['notes'])
        self.assertEqual([row['name'].split(' ', 1)[1] for row in report['rows']][0], 'baseline')

    def test_mistakes_of_stages(self):
        config = self.config(CONFIG + 'data: {name: generated, batch_size: 8}\n')
        stages = ('--what', 'stages')
        self.assertFails(npu_tool('bench', config, '--what', 'stages,step'), USAGE, '--what stages is measured alone')
        self.assertFails(npu_tool('bench', config, *stages, '--nproc', '2,4'), USAGE, 'one number of ranks')
        self.assertFails(npu_tool('bench', '--model', 'gpt2_tiny', *stages), USAGE, 'trains a configuration with its data')
        self.assertFails(npu_tool('bench', self.config(CONFIG), *stages), USAGE, 'no data')
        self.assertFails(npu_tool('bench', config, *stages, '--nproc', '0'), USAGE, '--nproc is 0')

    def test_mistakes(self):
        config = self.config(CONFIG)
        self.assertFails(npu_tool('bench', config, '--what', 'step', '--nproc', '2'), USAGE, '--what dist')
        self.assertFails(npu_tool('bench', config, *FAST, '--nproc', '0'), USAGE, '--nproc is 0')
        self.assertFails(npu_tool('bench', config, *FAST, '--nproc', '2', '--trace', self.dir / 'none' / 'trace.json'), 6, 'trace.json')


if __name__ == '__main__':
    main()
