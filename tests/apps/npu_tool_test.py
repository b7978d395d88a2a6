"""npu_tool's subcommands: one JSON document on stdout, and errors with their codes."""
import json
import unittest

from images import png
from programs import ProgramTest, SOURCE, main, npu_tool, run_dir, train_app


class NpuTool(ProgramTest):
    def json(self, *args):
        return json.loads(self.assertDone(npu_tool(*args, '--json')))

    def test_summary_counts_what_is_known(self):
        resnet = self.json('summary', '--model', 'resnet50')
        self.assertEqual(resnet['parameters'], 25557032)
        self.assertAlmostEqual(resnet['flops_per_image'] / 2e9, 4.09, delta=0.03)
        self.assertEqual(self.json('summary', '--model', 'vit_b16')['parameters'], 86567656)
        self.assertIn('layer4', self.assertDone(npu_tool('summary', '--model', 'resnet18')))
        small = self.json('summary', '--model', 'resnet50', '--image', '64')
        classifier = 2 * 2048 * 1000  # the classifier is the only layer whose work does not grow with the image
        self.assertEqual(resnet['flops_per_image'] - classifier, (224 / 64)**2 * (small['flops_per_image'] - classifier))
        self.assertFails(npu_tool('summary', '--model', 'resnet51'), 2, 'resnet50')

    def test_bench_gives_the_documented_keys(self):
        document = self.json('bench', '--model', 'vit_tiny_cifar10', '--batch', '2', '--what', 'step', '--steps', '2', '--warmup', '1')
        for key in ('samples_per_s', 'step_ms_median', 'step_ms_min', 'first_step_s', 'peak_rss_mb', 'parameters', 'flops_per_image'): self.assertGreater(document[key], 0, key)
        self.assertEqual(document['batch'], 2)
        self.assertLess(self.json('bench', '--model', 'vit_tiny_cifar10', 'model.depth=1', '--batch', '2', '--steps', '1', '--warmup', '1', '--no-machine')['parameters'], document['parameters'])
        document = self.json('bench', self.config(precision='32-true'), '--what', 'train', '--steps', '3', '--warmup', '2', '--no-machine')
        self.assertEqual(document['steps'], 3)
        document = self.json('bench', self.config(precision='32-true'), '--what', 'loader', '--no-machine')
        self.assertGreater(document['samples_per_s'], 0)
        self.assertTrue(any('data.num_workers=' in note for note in document['notes']), document['notes'])
        self.assertFails(npu_tool('bench', '--what', 'nonsense'), 2, 'step')

    def test_bench_measures_what_checkpointing_saves(self):
        step = ('bench', '--model', 'vit_tiny_cifar10', '--batch', '8', '--steps', '1', '--warmup', '1', '--activations', '--precision', '32-true', '--device', 'cpu', '--no-machine')
        none = self.json(*step)['activations_bytes']
        self.assertLess(self.json(*step, 'trainer.gradient_checkpointing=blocks')['activations_bytes'], 0.5 * none)

    def test_predict_from_a_checkpoint_without_its_data(self):
        self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', 'trainer.max_epochs=1'))
        png(self.dir / 'a.png', 32, (200, 10, 10))
        png(self.dir / 'b.png', 80, (10, 200, 10))
        document = self.json('predict', '--checkpoint', run_dir(self.dir / 'out'), '--logits', self.dir / 'l.npy', self.dir / 'a.png', self.dir / 'b.png')
        self.assertEqual(len(document['predictions']), 2)
        for prediction in document['predictions']:
            self.assertEqual(len(prediction['top']), 5)
            self.assertGreaterEqual(prediction['top'][0]['probability'], prediction['top'][4]['probability'])
        header = (self.dir / 'l.npy').read_bytes()[:128]
        self.assertIn(b"'shape': (2, 10)", header)

    def test_predict_refuses_what_it_cannot_read(self):
        png(self.dir / 'a.png', 32, (1, 2, 3))
        (self.dir / 'cut.png').write_bytes((self.dir / 'a.png').read_bytes()[:60])
        self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', 'trainer.max_epochs=1'))
        self.assertFails(npu_tool('predict', '--checkpoint', run_dir(self.dir / 'out'), self.dir / 'cut.png'), 3, 'cut.png')
        self.assertFails(npu_tool('predict', '--checkpoint', run_dir(self.dir / 'out'), self.dir / 'none.png'), 3, 'none.png')
        self.assertFails(npu_tool('predict', self.dir / 'a.png'), 2, '--checkpoint')

    def test_weights_are_converted_and_checked(self):
        self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', 'trainer.max_epochs=1'))
        weights = self.dir / 'w.safetensors'
        document = self.json('weights', '--from', run_dir(self.dir / 'out'), '--to', weights)
        self.assertGreater(document['elements'], 0)
        self.assertEqual(self.json('weights', '--from', weights)['elements'], document['elements'])
        self.assertFails(npu_tool('weights', '--from', weights, '--to', self.dir / 'w.bin'), 2, 'safetensors')
        self.assertFails(npu_tool('weights', '--from', weights, '--as', 'timm'), 2, '--to FILE')
        self.assertFails(npu_tool('weights', '--from', weights, 'model.depth=1'), 2, '--model NAME')
        (self.dir / 'bad.pth').write_bytes(b'garbage')
        self.assertFails(npu_tool('weights', '--from', self.dir / 'bad.pth'), 6, 'bad.pth')

    def test_weights_get_the_names_of_other_libraries_and_other_sizes(self):
        self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', 'trainer.max_epochs=1', 'average.enabled=false'))
        vit = ('--model', 'vit_tiny_cifar10', 'model.depth=1', 'model.dim=32', 'model.heads=2')
        png(self.dir / 'a.png', 32, (200, 10, 10))

        def predict(weights, logits):
            code, out, err = npu_tool('predict', *vit, 'model.patch_size=8', '--num-classes', '10', '--weights', weights, '--logits', logits, self.dir / 'a.png')
            self.assertEqual(code, 0, out + err)
            return err
        predict(run_dir(self.dir / 'out'), self.dir / 'a.npy')
        source, trained = run_dir(self.dir / 'out'), 'torchvision'
        for naming, kind in (('timm', 'pt'), ('hf', 'safetensors'), ('hf4', 'pth'), ('torchvision', 'pt')):
            made = self.dir / f'{naming}.{kind}'
            document = self.json('weights', '--from', source, '--to', made, '--as', naming)
            self.assertEqual((document['family'], document['naming'], document['as'], document['omitted']), ('vit', trained, naming, 0))
            self.assertIn('a vit with the names of', predict(made, self.dir / 'b.npy'))
            self.assertEqual((self.dir / 'a.npy').read_bytes(), (self.dir / 'b.npy').read_bytes(), naming)
            source, trained = made, naming
        # Loads for another image size, with twice as many patches in each direction.
        document = self.json('weights', '--from', self.dir / 'timm.pt', *vit, 'model.patch_size=8', 'model.image_size=64', '--to', self.dir / '64.safetensors')
        self.assertTrue(document['fits'])
        self.assertEqual(self.json('weights', '--from', self.dir / '64.safetensors')['elements'] - self.json('weights', '--from', made)['elements'], 48 * 32)

    def test_weights_that_do_not_fit_name_the_keys_that_would(self):
        self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', 'trainer.max_epochs=1'))
        made = self.dir / 'w.safetensors'
        png(self.dir / 'a.png', 32, (200, 10, 10))
        self.assertDone(npu_tool('weights', '--from', run_dir(self.dir / 'out'), '--to', made, '--as', 'timm'))
        predict = ('predict', '--model', 'vit_tiny_cifar10', '--weights', made, self.dir / 'a.png')
        keys = ('model.patch_size=8', 'model.dim=32', 'model.depth=1')
        self.assertFails(npu_tool(*predict), 6, *keys)
        self.assertFails(npu_tool(*predict, *keys, 'model.heads=2', '--num-classes', '7'), 6, 'the network of these weights has model.num_classes=10')
        self.assertDone(npu_tool(*predict, *keys, 'model.heads=2'))
        self.assertFails(npu_tool(*predict, 'model.dpth=1'), 2, 'depth')
        self.assertFails(npu_tool(*predict[:-1]), 2, 'images')
        self.assertFails(npu_tool('predict', '--checkpoint', run_dir(self.dir / 'out'), '--model', 'vit', self.dir / 'a.png'), 2, 'omit --model')
        self.assertFails(npu_tool('predict', '--checkpoint', run_dir(self.dir / 'out'), 'model.depth=2', self.dir / 'a.png'), 6, 'model.depth=1')
        target = self.dir / 'none.safetensors'
        code, out, err = npu_tool('weights', '--from', made, '--model', 'vit_tiny_cifar10', *keys[:2], 'model.heads=2', '--to', target)
        self.assertEqual(code, 7, err)
        self.assertIn('nothing was written', out)
        self.assertFalse(target.exists())

    def test_a_pth_of_pytorch_is_read(self):
        try:
            import torch
        except ImportError:
            self.skipTest('the Python package torch is not installed')
        torch.save({'state_dict': {'module.fc.weight': torch.ones(3, 4), 'module.fc.bias': torch.zeros(3)}, 'epoch': 3}, self.dir / 'x.pth')
        document = self.json('weights', '--from', self.dir / 'x.pth', '--to', self.dir / 'x.safetensors')
        self.assertEqual(document['tensors'], 2)

    def test_determinism_is_verified(self):
        run = ('verify-determinism', self.config(), '--steps', '2', f'output.dir={self.dir}/out')
        document = self.json(*run, 'data.mixup_alpha=0.4')
        self.assertIs(document['passed'], True)
        self.assertEqual((document['steps'], document['different_when_repeated'], document['different_with_other_workers']), (2, [], []))
        self.assertRegex(document['digest'], '^[0-9a-f]{16}$')
        self.assertEqual(self.json(*run, 'data.mixup_alpha=0.4', '--other-workers', '0')['digest'], document['digest'])
        for other in ('seed=8', 'data.mixup_alpha=0'):  # the digest belongs only to this run
            self.assertNotEqual(self.json(*run, 'data.mixup_alpha=0.4', other)['digest'], document['digest'], other)
        said = self.assertDone(npu_tool(*run))
        self.assertIn('determinism verified: two runs of 2 steps and one with different loader workers are equal', said)
        self.assertFalse((self.dir / 'out').exists())

    def test_determinism_that_cannot_be_verified(self):
        def verify(*args): return npu_tool('verify-determinism', *args, '--json')
        config = self.config()
        self.assertFails(verify(), 2, 'CONFIG.yaml')
        self.assertFails(verify(self.dir / 'none.yaml'), 2, 'none.yaml')
        self.assertFails(verify(config, 'trainer.max_epoch=1'), 2, "did you mean 'max_epochs'")
        self.assertFails(verify(config, '--steps', '0'), 2, 'steps is 0', 'at least 1')
        self.assertFails(verify(config, '--other-workers', '-1'), 2, 'other_workers -1')
        self.assertFails(verify(config, '--steps', '99', 'trainer.max_epochs=1'), 2, '99 are needed', 'trainer.max_epochs', '--steps')
        self.assertFails(verify(config, 'device=cuda:9'), 4, 'cuda')
        self.assertFails(verify(config, f'data={{name: cifar10, root: {self.dir}/nowhere}}'), 3, 'nowhere')

    def test_usage(self):
        self.assertEqual(npu_tool()[0], 2)
        self.assertEqual(npu_tool('nonsense')[0], 2)
        self.assertIn('npu_train', self.assertDone(npu_tool('--version')))


if __name__ == '__main__': main()
