"""Plain PyTorch training with torch_npu on sim_cann against the CPU: the same losses, in fp32 and with autocast and loss scaling."""
import unittest

import environment

STEPS = 5


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global torch, nn, F
        import torch
        import torch.nn.functional as F
        import torch_npu  # noqa: F401
        from torch import nn

        class Convolutions(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8 * 4 * 4, 10)

            def forward(self, x):
                return self.last(F.max_pool2d(F.relu(self.norm(self.first(x))), 2).flatten(1))

        class Transformer(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.last = nn.Embedding(20, 16), nn.Linear(16, 20)
                self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2)

            def forward(self, x):
                return self.last(self.layers(self.embedding(x))).flatten(0, 1)

        torch.manual_seed(0)
        cls.cases = {
            'mlp': (lambda: nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10)), torch.randn(8, 12), torch.randint(0, 10, (8,))),
            'convolutions': (Convolutions, torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,))),
            'transformer': (Transformer, torch.randint(0, 20, (4, 6)), torch.randint(0, 20, (24,)))}

    def losses(self, device, case, optimizer, autocast=None, poison=None):
        """The losses of STEPS steps, and the scales of the loss. `poison`: the step whose gradients overflow."""
        make, x, y = self.cases[case]
        torch.manual_seed(1)
        model = make().to(device)
        step_of = optimizer(model.parameters())
        scaler = torch.amp.GradScaler(device, enabled=autocast == torch.float16, init_scale=1024, growth_interval=2)
        losses, scales = [], []
        for step in range(STEPS):
            step_of.zero_grad()
            with torch.autocast(device, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            scaler.scale(loss * float('inf') if step == poison else loss).backward()
            scaler.unscale_(step_of)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(step_of)
            scaler.update()
            losses.append(loss.item())
            scales.append(scaler.get_scale())
        return losses, scales

    def compare(self, tolerance, *arguments, **options):
        (cpu, cpu_scales), (npu, npu_scales) = (self.losses(device, *arguments, **options) for device in ('cpu', 'npu'))
        self.assertEqual(cpu_scales, npu_scales)
        self.assertNotEqual(cpu[0], cpu[-1])
        for here, there in zip(cpu, npu):
            self.assertLessEqual(abs(here - there), tolerance, (cpu, npu))

    def test_fp32_gives_the_losses_of_the_cpu(self):
        optimizers = [lambda p: torch.optim.AdamW(p, lr=0.01), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)]
        for case in self.cases:
            for i, optimizer in enumerate(optimizers):
                with self.subTest(case, optimizer=i):
                    self.compare(1e-5, case, optimizer)

    def test_autocast_gives_the_losses_of_the_cpu_in_that_precision(self):
        for case in self.cases:
            for dtype, tolerance in [(torch.bfloat16, 0.05), (torch.float16, 0.01)]:
                with self.subTest(case, dtype=dtype):
                    self.compare(tolerance, case, lambda p: torch.optim.AdamW(p, lr=0.01), autocast=dtype)

    def test_an_overflow_skips_its_step_and_halves_the_scale(self):
        self.compare(0.01, 'mlp', lambda p: torch.optim.SGD(p, lr=0.1), autocast=torch.float16, poison=2)
        _, scales = self.losses('npu', 'mlp', lambda p: torch.optim.SGD(p, lr=0.1), autocast=torch.float16, poison=2)
        self.assertEqual(scales, [1024, 2048, 1024, 1024, 2048])

    def test_the_networks_compute_on_the_npu_and_not_on_the_host(self):
        """An operator that torch_npu runs on the CPU would be compared with itself."""
        script = '''
import torch, torch_npu
model = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).npu()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(2, 5, 16, device='npu')).sum().backward()
optimizer.step()
print(all(p.grad.isfinite().all().item() for p in model.parameters()))
'''
        status, out, err = environment.program(script)
        self.assertEqual((status, out), (0, 'True\n'), err)
        self.assertNotIn('fall back', err)


if __name__ == '__main__':
    environment.main()
