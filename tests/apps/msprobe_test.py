"""Dumps and comparisons mixed with those of Ascend's msprobe itself, and of torchvision's networks: skipped without them. The Python that has
them is NPU_TRAIN_MSPROBE_PYTHON, .venv/msprobe (scripts/setup --dev), or this one."""
import csv
import json
import shutil
import unittest

from peers import Peer, python_of
from programs import FULL, SOURCE, ProgramTest, main, npu_tool, train_app

PEER = Peer(python_of('msprobe'), msprobe='import msprobe.pytorch, msprobe.msprobe', torchvision='import any_torchvision\nfrom torchvision import models')
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
TORCHVISION = '''
import json, sys, torch
from torchvision import models
name, side, what = sys.argv[1:]
torch.manual_seed(0)
net = getattr(models, name)(num_classes=10, **({'image_size': int(side)} if 'vit' in name else {}))
if what == 'weights':
    for path, p in net.named_parameters():
        if p.dim() == 1: p.data.add_(torch.randn_like(p) * 0.1)
        if path.endswith('bn3.weight'): p.data.mul_(0.2)  # else rounding grows through fifty layers
        if path == 'heads.head.weight': p.data.normal_(std=0.02)
    torch.save(net.state_dict(), 'weights.pth')
    sys.exit()
from msprobe.pytorch import PrecisionDebugger
net.load_state_dict(torch.load('weights.pth'))
batch = 'batch/step0/rank0/dump_tensor_data/'
x = torch.load(batch + ('Module.conv_proj' if 'vit' in name else 'Module.conv1') + '.Conv2d.forward.0.input.0.pt')
target = torch.load(batch + 'Functional.cross_entropy.0.forward.input.1.pt')
scopes = {'scope': [], 'list': [], 'data_mode': ['all']}
json.dump({'task': what, 'dump_path': 'theirs', 'rank': [], 'step': [], 'level': 'L0', 'tensor': scopes,
           'statistics': scopes | {'summary_mode': 'statistics'}}, open('config.json', 'w'))
debugger = PrecisionDebugger(config_path='config.json')
debugger.start(model=net)
torch.nn.functional.cross_entropy(net(x), target).backward()
debugger.stop()
debugger.step()
'''


@unittest.skipUnless(PEER.has('msprobe'), 'msprobe is not installed (pip install mindstudio-probe; NPU_TRAIN_MSPROBE_PYTHON)')
class Msprobe(ProgramTest):
    def test_msprobe_compares_our_dumps(self):
        config = self.config(precision='32-true')
        for level, task in (('module', 'statistics'), ('mix', 'tensor')):
            for name in ('a', 'b'):
                dump = (f'dump.dir={self.dir}/{level}/{name}', f'dump.level={level}', f'dump.task={task}', f'output.dir={self.dir}/runs')
                self.assertDone(train_app(config, 'trainer.max_steps=1', 'trainer.limit_val_batches=0', *dump))
            out = self.dir / level / 'out'
            a, b = (self.dir / level / name / 'step0' for name in ('a', 'b'))
            code, said, error = PEER.run('-m', 'msprobe.msprobe', 'compare', '-tp', a, '-gp', b, '-o', out, cwd=self.dir)
            self.assertEqual(code, 0, said + error)
            (table,) = out.glob('*.csv')
            rows = list(csv.DictReader(table.read_text().splitlines()))
            self.assertGreater(len(rows), 50)
            for row in rows:
                self.assertEqual(row['NPU Name'], row['Bench Name'])
                if task == 'tensor' and row['NPU Dtype'].startswith('torch.float'): self.assertEqual(row['MaxAbsErr'], '0.0', row)

    def test_our_comparison_reads_their_dumps(self):
        (self.dir / 'train.py').write_text(TRAIN)
        # msprobe computes checksums in threads of its own. For operators that work in place (L1), they may be of the later value.
        for task, level, summary in (('statistics', 'L1', 'statistics'), ('tensor', 'mix', 'statistics'), ('statistics', 'L0', 'md5')):
            dumps = [self.dir / f'{task}_{level}_{summary}_{name}' for name in ('a', 'b')]
            for dump in dumps:
                code, said, error = PEER.run(self.dir / 'train.py', task, level, summary, dump, cwd=self.dir)
                self.assertEqual(code, 0, said + error)
            code, out, error = npu_tool('compare', *dumps, '--json')
            self.assertEqual(code, 0, out + error)
            result = json.loads(out)
            self.assertTrue(result['agrees'])
            self.assertEqual([step['step'] for step in result['steps']], [0, 1])
            self.assertGreater(sum(step['compared'] for step in result['steps']), 20)

    @unittest.skipUnless(PEER.has('torchvision'), 'torchvision is not installed (pip install --no-deps torchvision)')
    def test_the_same_network_in_pytorch_and_here_agrees(self):
        """Compares msprobe's dump of torchvision's network with ours, in every value that both have. The weights and the batch are
        equal."""
        (self.dir / 'network.py').write_text(TORCHVISION)
        networks = (('resnet18', 'resnet18', 64, 'tensor', 25), ('resnet18', 'resnet18, fused_kernels: false', 64, 'tensor', 25),
                    ('resnet50', 'resnet50', 64, 'tensor', 60), ('vit_b_16', 'vit_b16', 32, 'statistics', 60))
        for name, ours, side, task, gradients in networks if FULL else networks[:1]:
            with self.subTest(ours):
                self.python('network.py', name, side, 'weights')
                config = ('configs/quickstart.yaml', f'model={{name: {ours}, num_classes: 10, image_size: {side}, weights: {self.dir}/weights.pth}}',
                          f'data={{name: generated, image_size: {side}, batch_size: 4, train_size: 64, val_size: 16}}', 'optimizer={name: sgd, lr: 0.01}',
                          'lr_scheduler={}', 'trainer.max_steps=1', 'trainer.limit_val_batches=0', 'checkpoint.enabled=false', 'output.dir=""')
                for dump in ((f'dump={{dir: {self.dir}/batch, task: tensor, level: mix, list: [conv1, conv_proj, cross_entropy]}}',),
                             (f'dump={{dir: {self.dir}/ours, task: {task}}}',)):
                    self.assertDone(train_app(*config, *dump, cwd=SOURCE))
                self.python('network.py', name, side, task)
                code, out, error = npu_tool('compare', self.dir / 'ours', self.dir / 'theirs', '--json')
                result = json.loads(out)
                self.assertEqual(code, 0, result['summary'] + json.dumps(result['first_divergence']) + error)
                calls = result['steps'][0]['calls']
                self.assertEqual([i for c in calls for i in c['items'] if 'differs' in i['verdict']], [])
                # Gradients that the layers pass to their inputs. A value that feeds several layers has one from each.
                given = [i for c in calls if c['direction'] == 'backward' for i in c['items'] if i['side'] == 'output' and i['verdict'] in ('agrees', 'rounding')]
                self.assertGreater(len(given), gradients)
                both = [c['layer'] for c in calls if c['a'] and c['b'] and c['direction'] == 'forward']
                for layer in ('layer1.0', 'layer4.0.downsample.1', 'fc') if 'resnet' in name else ('encoder.ln', 'encoder.layers.encoder_layer_0.self_attention'):
                    self.assertIn(layer, both)
                shutil.rmtree(self.dir / 'theirs')

    def python(self, *args):
        code, said, error = PEER.run(*args, cwd=self.dir)
        self.assertEqual(code, 0, said + error)


if __name__ == '__main__': main()
