"""npu_tool export --to m.pt: Python loads the module, gets equal outputs and trains it; npu_train trains it too. The comparisons with Python
are skipped without torch in this Python."""
import json
import unittest

from images import png_of
from programs import ProgramTest, main, npu_tool, run_dir, train_app

try:
    import numpy
    import torch
except ImportError:
    torch = None

SMALL = ('--model', 'vit_tiny_cifar10', 'model.depth=1', 'model.dim=32', 'model.heads=2', 'model.patch_size=8')
AGAIN = '''
device: cpu
precision: 32-true
model: {name: torchscript, path: %s, allow_code: true}
data: {name: generated, train_size: 160, val_size: 16, batch_size: 16, num_workers: 0}
optimizer: {name: adamw, lr: 0.002}
trainer: {threads: 1, max_epochs: 4}
'''


class TorchScriptExport(ProgramTest):
    def export(self, *args): return json.loads(self.assertDone(npu_tool('export', *args, '--to', self.dir / 'm.pt', '--check', '--json')))

    @unittest.skipIf(torch is None, 'the Python package torch is not installed')
    def test_python_computes_what_a_prediction_computes_and_trains_the_module(self):
        config = self.config(precision='32-true')
        self.assertDone(train_app(config, f'output.dir={self.dir}/out', 'trainer.max_steps=4', 'trainer.limit_val_batches=0', 'average.enabled=false'))
        run = run_dir(self.dir / 'out')
        found = self.export('--checkpoint', run)
        self.assertEqual(found['inputs'], [{'name': 'input', 'dtype': 'float32', 'shape': ['batch', 3, 32, 32]}])
        self.assertEqual([(c['by'], c['agrees']) for c in found['checks']], [('libtorch', True)])
        images = [bytes((7 * k + 31 * i) % 256 for i in range(3072)) for k in range(3)]
        for k, pixels in enumerate(images): (self.dir / f'{k}.png').write_bytes(png_of(32, pixels))
        self.assertDone(npu_tool('predict', '--checkpoint', run, '--device', 'cpu', '--logits', self.dir / 'l.npy', *(self.dir / f'{k}.png' for k in range(3))))
        expected = torch.from_numpy(numpy.load(self.dir / 'l.npy'))
        entries = {'npu_train.mean': '', 'npu_train.std': '', 'npu_train.classes': ''}
        net = torch.jit.load(self.dir / 'm.pt', _extra_files=entries)
        self.assertFalse(net.training)
        self.assertEqual(len(entries['npu_train.classes'].decode().split('\n')), 10)
        mean, std = (torch.tensor([float(v) for v in entries[f'npu_train.{key}'].decode().split(',')]).view(3, 1, 1) for key in ('mean', 'std'))
        x = torch.stack([torch.tensor(list(p)).reshape(32, 32, 3).permute(2, 0, 1) / 255 for p in images])
        self.assertLess((net((x - mean) / std) - expected).abs().max().item(), 1e-5 * expected.abs().max().item())
        # The state_dict equals the weights in torchvision's names.
        self.assertDone(npu_tool('weights', '--from', run, '--to', self.dir / 'w.pth'))
        state = torch.load(self.dir / 'w.pth', weights_only=True)
        self.assertEqual(set(net.state_dict()), set(state))
        for name, value in net.state_dict().items(): self.assertTrue(torch.equal(value, state[name]), name)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        target = torch.tensor([0, 1, 2])
        losses = []
        for _ in range(4):
            losses.append(torch.nn.functional.cross_entropy(net((x - mean) / std), target))
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
        self.assertLess(losses[-1].item(), losses[0].item())

    def test_npu_train_trains_the_module(self):
        self.export(*SMALL, 'model.num_classes=10')
        self.assertDone(train_app(self.config(AGAIN % (self.dir / 'm.pt')), f'output.dir={self.dir}/out'))
        epochs = json.loads((run_dir(self.dir / 'out') / 'history.json').read_text())['epochs']
        self.assertLess(epochs[3]['train']['loss'], epochs[0]['train']['loss'])

    def test_every_built_in_kind_of_model(self):
        for words in (('--model', 'resnet18', 'model.num_classes=7', 'model.image_size=32', 'model.stem=small'), ('--model', 'gpt2_tiny'), ('--model', 'llama_tiny'), ('--model', 'glm_tiny'), ('--model', 'bert_tiny'),
                      (*SMALL, 'model.qkv=split')):
            with self.subTest(words[1]):
                found = self.export(*words)
                self.assertLess(found['checks'][0]['difference'], 1e-6)
                self.assertEqual(found['outputs'][0]['shape'][:-1], [size for size in found['inputs'][0]['shape'] if not isinstance(size, int)])
                if torch is None: continue
                net = torch.jit.load(self.dir / 'm.pt')
                sizes = lambda shape: [5 if not isinstance(size, int) else size for size in shape]
                given = [torch.zeros(sizes(i['shape']), dtype=getattr(torch, i['dtype'])) for i in found['inputs']]
                self.assertEqual(list(net(*given).shape[:1]), [5])

    def test_fixed_sizes_and_the_text_for_people(self):
        said = self.assertDone(npu_tool('export', '--model', 'gpt2_tiny', '--dynamic', 'batch', '--to', self.dir / 'm.pt', '--check'))
        self.assertRegex(said, r"input 'input': int64 \[batch, \d+\]")
        self.assertIn('m.pt: ', said)
        self.assertIn('libtorch: agrees (largest difference', said)

    def test_options_of_onnx_are_refused(self):
        for words in (('--opset', '17'), ('--external-data',), ('--atc', '910B1')):
            self.assertFails(npu_tool('export', *SMALL, '--to', self.dir / 'm.pt', *words), 2, 'is TorchScript; hint: --to FILE.onnx')
        self.assertFails(npu_tool('export', *SMALL, '--to', self.dir / 'm.pt', '--dtype', 'fp16'), 2, 'has the dtype of the weights')
        self.assertFails(npu_tool('export', *SMALL, '--to', self.dir / 'm.pt', '--dynamic', 'tokens'), 2, "[export_torchscript] no input has a free size 'tokens'")
        self.assertFails(npu_tool('export', *SMALL, '--to', '/proc/m.pt'), 6, '/proc')
        self.assertFalse((self.dir / 'm.pt').exists())


if __name__ == '__main__': main()
