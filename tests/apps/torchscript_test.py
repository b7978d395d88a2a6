"""A TorchScript module of Python trains in every precision and is saved again. Skipped without torch in this Python."""
import json
import random
import unittest

from images import png_of
from programs import ProgramTest, checksums, main, needs_sim_npu, npu_tool, run_dir, train_app

try:
    import numpy
    import torch
    from torch import nn
except ImportError:
    torch = None

CONFIG = '''
device: cpu
precision: 32-true
model: {name: torchscript, path: %s}
data: {name: generated, train_size: 160, val_size: 16, batch_size: 16, num_workers: 0}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
trainer: {threads: 1, max_epochs: 2}
'''

if torch is not None:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU())
            self.norm = nn.LayerNorm(8)
            self.head = nn.Linear(8, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x).mean([2, 3])
            if self.training: x = x + 0.01 * torch.randn_like(x)  # a decision that a trace would lose
            return self.head(torch.tanh(self.norm(x) * 2 + 1) * torch.sigmoid(x))


@unittest.skipIf(torch is None, 'the Python package torch is not installed')
class TorchScript(ProgramTest):
    def module(self):
        torch.manual_seed(0)
        torch.jit.script(Net()).save(self.dir / 'm.pt')
        return self.dir / 'm.pt'

    def train(self, *overrides, precision='32-true'):
        return train_app(self.config(CONFIG % self.module()), f'precision={precision}', *overrides, f'output.dir={self.dir}/{precision}')

    def test_it_trains_in_every_precision(self):
        for precision in ('32-true', 'bf16-mixed', '16-mixed', 'bf16-true', '16-true'):
            with self.subTest(precision):
                self.assertDone(self.train('model.allow_code=true', precision=precision))
                epochs = json.loads((run_dir(self.dir / precision) / 'history.json').read_text())['epochs']
                self.assertLess(epochs[1]['train']['loss'], epochs[0]['train']['loss'])

    @needs_sim_npu
    def test_a_trace_trains_on_sim_npu_as_on_the_cpu(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding='same'), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2, bias=False),
                            nn.ConvTranspose2d(8, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
        torch.jit.trace(net, torch.randn(16, 3, 32, 32), check_trace=False).save(self.dir / 'trace.pt')
        for device in ('cpu', 'sim_npu'):
            config = self.config(CONFIG % (self.dir / 'trace.pt'))
            self.assertDone(train_app(config, f'device={device}', 'model.allow_code=true', f'output.dir={self.dir}/{device}'))
        self.assertEqual(checksums(self.dir / 'cpu')['model.safetensors'], checksums(self.dir / 'sim_npu')['model.safetensors'])

    def test_it_is_saved_again_and_python_loads_it(self):
        self.assertDone(self.train('model.allow_code=true'))
        source = random.Random(1)
        pixels = bytes(source.randrange(256) for _ in range(3 * 32 * 32))
        (self.dir / 'a.png').write_bytes(png_of(32, pixels))
        run = run_dir(self.dir / '32-true')
        last = run / 'checkpoints' / 'last'
        trained = self.dir / 'trained.pt'
        self.assertDone(npu_tool('weights', '--from', last, '--to', trained, '--as', 'torchscript', 'model.allow_code=true'))
        self.assertDone(npu_tool('predict', '--checkpoint', last, 'model.allow_code=true', '--device', 'cpu', '--logits', self.dir / 'l.npy', self.dir / 'a.png'))
        net = torch.jit.load(trained)
        self.assertFalse(net.training)
        x = (torch.tensor(list(pixels)).reshape(1, 32, 32, 3).permute(0, 3, 1, 2) / 255 - 0.5) / 0.28
        expected = torch.from_numpy(numpy.load(self.dir / 'l.npy'))
        self.assertLess((net(x) - expected).abs().max().item(), 1e-5 * expected.abs().max().item())
        self.assertGreater((net(x) - torch.jit.load(self.dir / 'm.pt').eval()(x)).abs().max().item(), 1e-3)
        # Training can continue from the file, in Python also with its optimizer's state.
        self.assertDone(self.train(f'model.path={trained}', 'model.allow_code=true', 'trainer.max_epochs=1'))
        self.assertDone(npu_tool('weights', '--from', last, '--to', self.dir / 'torch', '--as', 'training', 'model.allow_code=true'))
        saved = torch.load(self.dir / 'torch' / 'best_model_epoch_2.pth', weights_only=True)
        net = Net()
        net.load_state_dict(saved['model_state_dict'], strict=True)
        torch.optim.SGD(net.parameters(), lr=1).load_state_dict(saved['optimizer_state_dict'])

    def test_a_run_resumes_bit_for_bit(self):
        """The optimising executor of TorchScript would change last bits after its first batches."""
        config = self.config(CONFIG % self.module())
        self.assertIn('resume verified', self.assertDone(train_app(config, 'model.allow_code=true', '--verify-resume', f'output.dir={self.dir}/out')))

    def test_code_runs_only_with_permission(self):
        self.assertFails(self.train(), 2, 'm.pt', 'contains code', 'model.allow_code=true')
        self.assertDone(self.train('model.allow_code=true', 'trainer.max_epochs=1'))
        # The permission is not in the checkpoint, because another user gave it.
        run = run_dir(self.dir / '32-true')
        (self.dir / 'a.png').write_bytes(png_of(32, bytes(3072)))
        for command in (('predict', '--checkpoint', run, self.dir / 'a.png'), ('eval', '--checkpoint', run),
                        ('weights', '--from', run, '--to', self.dir / 'x.pt', '--as', 'torchscript')):
            self.assertFails(npu_tool(*command), 2, 'model.allow_code=true')
        self.assertDone(npu_tool('eval', '--checkpoint', run, 'model.allow_code=true'))
        self.assertFalse((self.dir / 'x.pt').exists())
        # As a weights file, it is refused without a question.
        self.assertFails(train_app(self.config(), f'model.weights={self.module()}'), 6, 'TorchScript')

    def test_what_cannot_be_trained(self):
        frozen = torch.jit.freeze(torch.jit.script(Net()).eval())
        frozen.save(self.dir / 'frozen.pt')
        self.assertFails(self.train(f'model.path={self.dir}/frozen.pt', 'model.allow_code=true'), 2, 'no parameters', 'freeze')
        self.assertFails(self.train('model.allow_code=true', 'model.num_classes=12'), 2, 'model.num_classes', '10')
        self.assertFails(self.train(f'model.path={self.dir}/none.pt', 'model.allow_code=true'), 2, 'no such file')


if __name__ == '__main__': main()
