"""Averages of weights: npu_tool average against the means of numbers, average.kind=checkpoints against npu_tool average, and average.kind=swa
against PyTorch."""
import array
import array
import csv
import json
import math
import pathlib

from peers import MODELS_PYTHON, Peer
from programs import ProgramTest, main, npu_tool, run_dir, safetensors_of, train_app

SETTINGS = ('trainer.max_epochs=3', 'checkpoint.save_top_k=-1', 'checkpoint.every_n_train_steps=0', 'data.train_size=48', 'data.val_size=16', 'average.enabled=false')
PEER = Peer(MODELS_PYTHON, torch='import torch', safetensors='import safetensors.torch')
SCRIPT = pathlib.Path(__file__).with_name('python_averages.py')


class Average(ProgramTest):
    def train(self):
        self.assertDone(train_app(self.config(precision='32-true', workers=0), f'output.dir={self.dir}/out', *SETTINGS))
        self.run_dir = run_dir(self.dir / 'out')
        self.checkpoints = sorted(p for p in (self.run_dir / 'checkpoints').glob('epoch=*'))
        self.assertEqual(len(self.checkpoints), 3)

    def averaged(self, *args):
        self.assertDone(npu_tool('average', *args, '--to', self.dir / 'mean.safetensors'))
        return safetensors_of(self.dir / 'mean.safetensors')

    def assertMeans(self, result, sources):
        weights = [safetensors_of(path / 'model.safetensors') for path in sources]
        self.assertEqual(set(result), set(weights[0]))
        for name, (dtype, shape, data) in result.items():
            self.assertEqual((dtype, shape), weights[0][name][:2])
            numbers = zip(*(array.array('f', w[name][2]) for w in weights))
            self.assertEqual(array.array('f', [sum(n) / len(weights) for n in numbers]), array.array('f', data), name)

    def test_checkpoints_of_a_run(self):
        self.train()
        self.assertMeans(self.averaged(self.run_dir), self.checkpoints)
        self.assertMeans(self.averaged(self.run_dir / 'checkpoints', '--last', 2), self.checkpoints[1:])
        self.assertMeans(self.averaged(self.checkpoints[0], self.checkpoints[2] / 'model.safetensors'), [self.checkpoints[0], self.checkpoints[2]])
        # The file is a weights file.
        self.assertDone(npu_tool('weights', '--from', self.dir / 'mean.safetensors', '--model', 'vit_tiny_cifar10', 'model.depth=1', 'model.dim=32', 'model.heads=2', 'model.patch_size=8'))

        to = self.dir / 'plain.safetensors'
        report = json.loads(self.assertDone(npu_tool('average', self.run_dir, '--weights', 'plain', '--json', '--to', to)))
        self.assertEqual((report['from'], report['to'], report['tensors']), ([str(path) for path in self.checkpoints], str(to), len(safetensors_of(to))))
        self.assertMeans(safetensors_of(to), self.checkpoints)
        self.assertFails(npu_tool('average', self.run_dir, '--weights', 'ema', '--to', to), 6)

    def test_a_run_that_averages_its_last_checkpoints(self):
        self.assertDone(train_app(self.config(precision='32-true', workers=0), f'output.dir={self.dir}/mean', *SETTINGS, 'average={kind: checkpoints, last: 2}', 'checkpoint.save_top_k=1'))
        last = run_dir(self.dir / 'mean') / 'checkpoints/last'
        with open(run_dir(self.dir / 'mean') / 'metrics.csv', newline='') as file: rows = [row for row in csv.DictReader(file) if row['phase'] == 'val']
        final = json.loads((run_dir(self.dir / 'mean') / 'history.json').read_text())['final_val']
        self.assertAlmostEqual(float(rows[-1]['loss']), final['loss'], delta=1e-6)  # the loss of the mean
        self.assertEqual(rows[-1]['step'], rows[-2]['step'])  # the row of the weights is before it
        means = {name: array.array('f', data) for name, (_, _, data) in self.averaged(run_dir(self.dir / 'mean'), '--last', 2, '--weights', 'plain').items()}
        kept = {name.removeprefix('average/'): array.array('f', data) for name, (_, _, data) in safetensors_of(last / 'ema.safetensors').items() if name.startswith('average/')}
        self.assertEqual(set(kept), set(means))
        for name, numbers in kept.items():
            for a, b in zip(numbers, means[name], strict=True): self.assertAlmostEqual(a, b, delta=1e-6 * max(1, abs(b)), msg=name)
        self.assertEqual(json.loads(self.assertDone(npu_tool('eval', '--checkpoint', last, '--json')))['weights'], 'ema')

    def test_equal_averages_and_their_rates_are_those_of_pytorch(self):
        if not PEER.has('torch', 'safetensors'): self.skipTest('there is no Python with torch and safetensors (scripts/setup --dev)')
        self.assertDone(train_app(self.config(precision='32-true', workers=0), f'output.dir={self.dir}/swa', *SETTINGS, 'trainer.max_epochs=6',
                                  'average={kind: swa, start: 2, lr: 0.001, anneal_epochs: 3}', 'lr_scheduler={name: cosine, T_max: 6}'))
        run = run_dir(self.dir / 'swa')
        checkpoints = sorted((run / 'checkpoints').glob('epoch=*'))[2:]
        lr = 0.002 * (1 + math.cos(math.pi * 2 / 6)) / 2
        (self.dir / 'job.json').write_text(json.dumps({'checkpoints': [str(path / 'model.safetensors') for path in checkpoints], 'averages': str(run / 'checkpoints/last/ema.safetensors'),
                                                       'lr': lr, 'swa_lr': 0.001, 'anneal_epochs': 3}))
        code, out, error = PEER.run(SCRIPT, self.dir / 'job.json')
        self.assertEqual(code, 0, out + error)
        theirs = json.loads(out.splitlines()[-1])
        self.assertGreater(theirs['tensors'], 10)
        self.assertLess(theirs['difference'], 1e-6)
        epochs = json.loads((run / 'history.json').read_text())['epochs']
        for epoch, rate in zip(epochs[2:], theirs['rates'], strict=True): self.assertAlmostEqual(epoch['lr'], rate, delta=1e-9)
        self.assertAlmostEqual(epochs[1]['lr'], 0.002 * (1 + math.cos(math.pi / 6)) / 2, delta=1e-9)
        self.assertFalse((sorted((run / 'checkpoints').glob('epoch=*'))[0] / 'ema.safetensors').exists())  # before the start

    def test_what_cannot_be_averaged(self):
        self.train()
        to = self.dir / 'no.safetensors'
        self.assertFails(npu_tool('average', self.checkpoints[0], '--to', to), 2, 'only', 'checkpoint.save_top_k')
        self.assertFails(npu_tool('average', self.run_dir, self.checkpoints[0], '--to', to), 2, 'a checkpoint is given twice')
        self.assertFails(npu_tool('average', self.run_dir, '--last', 1, '--to', to), 2, 'is left by --last')
        self.assertFails(npu_tool('average', self.run_dir, '--last', 4, '--to', to), 2, '--last 4, and there are 3')
        self.assertFails(npu_tool('average', self.run_dir, '--to', self.dir / 'no.txt'), 2, 'must end in .safetensors')
        self.assertDone(train_app(self.config(precision='32-true', workers=0), f'output.dir={self.dir}/other', *SETTINGS, 'trainer.max_epochs=1', 'model.dim=48'))
        self.assertFails(npu_tool('average', self.run_dir, run_dir(self.dir / 'other'), '--to', to), 6, 'has the shape')
        self.assertFails(npu_tool('average', self.run_dir, self.dir / 'absent', '--to', to), 3, 'absent')
        self.assertFalse(to.exists())


if __name__ == '__main__': main()
