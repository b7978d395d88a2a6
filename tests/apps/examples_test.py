"""The programs of examples/ do what they say."""
import os
import re
import unittest

from images import png
from programs import BIN, ProgramTest, SOURCE, contents, main, run, run_dir, train_app


class Examples(ProgramTest):
    def test_a_model_of_ones_own_by_its_yaml_name(self):
        # Uses one thread, because on busy cores the threads of each small loop wait for one another.
        out = self.assertDone(run(BIN / 'example_own_model', SOURCE / 'examples/own_model.yaml', 'trainer.threads=1', cwd=self.dir))
        self.assertGreater(float(re.search(r'accuracy ([\d.]+)', out).group(1)), 50)  # there are ten classes
        self.assertTrue((run_dir(self.dir / 'outputs') / 'checkpoints/best/manifest.json').exists())

    def test_every_command_with_a_model_of_ones_own(self):
        tool, out = BIN / 'example_own_tool', self.dir / 'out'
        model = ('model={name: linear_net}', 'precision=32-true', f'output.dir={out}', 'trainer.max_steps=2')
        self.assertDone(run(tool, 'train', self.config(), *model))
        text = self.assertDone(run(tool, 'eval', '--checkpoint', run_dir(out)))
        self.assertIn('val/acc1', text)
        self.assertDone(run(tool, 'verify-determinism', self.config(), *model, '--steps', '1'))
        self.assertFails(run(BIN / 'npu_tool', 'eval', '--checkpoint', run_dir(out)), 2, "no model has the name 'linear_net'")

    def test_regression(self):
        out = self.assertDone(run(BIN / 'example_regression', cwd=self.dir))
        self.assertLess(float(re.search(r'mean absolute error ([\d.]+)', out).group(1)), 0.1)

    def test_two_networks_with_an_optimizer_each(self):
        out = self.assertDone(run(BIN / 'example_gan', cwd=self.dir))
        mean, deviation = map(float, re.search(r'mean ([\d.-]+), deviation ([\d.]+)', out).groups())
        self.assertLess(abs(mean - 3), 0.7)  # the untrained generator makes numbers around 0
        self.assertLess(abs(deviation - 0.5), 0.4)

    def test_adapters_on_a_network_of_ones_own(self):
        out = self.assertDone(run(BIN / 'example_lora', cwd=self.dir))
        self.assertIn('lora: 2 layers with adapters of rank 4, 772 of 5,125 parameters are trained', out)
        for error in re.findall(r'error.* ([\d.]+)', out): self.assertLess(float(error), 0.1)

    def test_shards_of_a_network_of_ones_own(self):
        """Two ranks must have the bits of one process. Between steps, they must not have any complete unit."""
        program = BIN / 'example_shards'
        out = self.assertDone(run(program, 'single', self.dir / 'one'))
        self.assertLess(float(re.search(r'mean absolute error ([\d.]+)', out).group(1)), 0.1)
        self.assertIn('16384 bytes of layer2, and 256 of out', out)
        out = self.assertDone(run(BIN / 'npu_tool', 'launch', '--nproc', '2', program, 'zero3', self.dir / 'two'))
        self.assertEqual(out.count('0 bytes of layer2, and 0 of out'), 2, out)
        one, two = contents(self.dir / 'one'), contents(self.dir / 'two')
        for part in ('model.safetensors', 'optimizer.safetensors'): self.assertEqual(one[part], two[part], part)

    def test_serving_a_checkpoint(self):
        self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', 'trainer.max_epochs=1'))
        png(self.dir / 'a.png', 50, (200, 10, 10))
        out = self.assertDone(run(BIN / 'example_serve', run_dir(self.dir / 'out'), self.dir / 'a.png'))
        self.assertRegex(out, r'a\.png: \w+.* \([\d.]+ %\)')
        self.assertFails(run(BIN / 'example_serve'), 2, 'give a checkpoint')
        out = self.assertDone(run(BIN / 'example_frames', run_dir(self.dir / 'out')))
        frame, gray = re.findall(r'image \d: (.+ \([\d.]+ %\))', out)  # two images of the same shade, in colours and in gray
        self.assertEqual(frame, gray)

    def test_serving_an_offline_model(self):
        (self.dir / 'm.om').write_text('input x 0 1 3 224 224\noutput y 0 1 7\n')
        png(self.dir / 'a.png', 224, (200, 10, 10))
        env = {**os.environ, 'NPU_TRAIN_ASCENDCL': str(BIN.parent / 'tests' / 'fake_ascendcl')}
        self.assertRegex(self.assertDone(run(BIN / 'example_offline', self.dir / 'm.om', self.dir / 'a.png', env=env)), r'a\.png: class 6 \([\d.]+ %\)')

    def test_rooms(self):
        self.assertDone(run(BIN / 'example_rooms', self.dir, cwd=self.dir))


if __name__ == '__main__': main()
