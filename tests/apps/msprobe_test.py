"""Dumps and comparisons mixed with those of Ascend's msprobe itself (pip install mindstudio-probe): skipped without it. The Python that has
it is this one, or NPU_TRAIN_MSPROBE_PYTHON."""
import csv
import json
import os
import subprocess
import sys
import unittest

from programs import ProgramTest, main, npu_tool, run, train_app

PYTHON = os.environ.get('NPU_TRAIN_MSPROBE_PYTHON', sys.executable)
TRAIN = '''
import json, sys, torch
from torch import nn
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(100, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
task, level, summary, path = sys.argv[1:]
scopes = {'scope': [], 'list': [], 'data_mode': ['all']}
json.dump({'task': task, 'dump_path': path, 'rank': [], 'step': [], 'level': level, 'tensor': scopes,
           'statistics': scopes | {'summary_mode': summary}}, open('config.json', 'w'))
debugger = PrecisionDebugger(config_path='config.json')
x = torch.randn(2, 3, 5, 5)
for i in range(2):
    debugger.start(model=net)
    net(x).square().mean().backward()
    debugger.stop()
    optimizer.step()
    optimizer.zero_grad()
    debugger.step()
'''


def has_msprobe():
    return subprocess.run([PYTHON, '-c', 'import msprobe.pytorch, torch'], capture_output=True).returncode == 0


@unittest.skipUnless(has_msprobe(), 'msprobe is not installed (pip install mindstudio-probe; NPU_TRAIN_MSPROBE_PYTHON)')
class Msprobe(ProgramTest):
    def test_msprobe_compares_our_dumps(self):
        config = self.config(precision='32-true')
        for level, task in (('module', 'statistics'), ('mix', 'tensor')):
            for name in ('a', 'b'):
                dump = (f'dump.dir={self.dir}/{level}/{name}', f'dump.level={level}', f'dump.task={task}', f'output.dir={self.dir}/runs')
                self.assertDone(train_app(config, 'trainer.max_steps=1', 'trainer.limit_val_batches=0', *dump))
            out = self.dir / level / 'out'
            a, b = (self.dir / level / name / 'step0' for name in ('a', 'b'))
            code, said, error = run(PYTHON, '-m', 'msprobe.msprobe', 'compare', '-tp', a, '-gp', b, '-o', out, cwd=self.dir)
            self.assertEqual(code, 0, said + error)
            (table,) = out.glob('*.csv')
            rows = list(csv.DictReader(table.read_text().splitlines()))
            self.assertGreater(len(rows), 50)
            for row in rows:
                self.assertEqual(row['NPU Name'], row['Bench Name'])
                if task == 'tensor' and row['NPU Dtype'].startswith('torch.float'): self.assertEqual(row['MaxAbsErr'], '0.0', row)

    def test_our_comparison_reads_their_dumps(self):
        (self.dir / 'train.py').write_text(TRAIN)
        for task, level, summary in (('statistics', 'L0', 'statistics'), ('tensor', 'mix', 'statistics'), ('statistics', 'L1', 'md5')):
            dumps = [self.dir / f'{task}_{level}_{summary}_{name}' for name in ('a', 'b')]
            for dump in dumps:
                code, said, error = run(PYTHON, 'train.py', task, level, summary, dump, cwd=self.dir)
                self.assertEqual(code, 0, said + error)
            code, out, error = npu_tool('compare', *dumps, '--json')
            self.assertEqual(code, 0, out + error)
            result = json.loads(out)
            self.assertTrue(result['agrees'])
            self.assertEqual([step['step'] for step in result['steps']], [0, 1])
            self.assertGreater(sum(step['compared'] for step in result['steps']), 20)


if __name__ == '__main__': main()
