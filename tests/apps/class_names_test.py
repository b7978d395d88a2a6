"""Classes have names: data whose folders were renamed, removed or added, for evaluations, resumed runs, fine-tuning and predictions."""
import json
import os
import shutil
import unittest

from images import FOLDER, png
from programs import ProgramTest, main, npu_tool, safetensors_of, train_app

try: import torch
except ImportError: torch = None

COLOURS = {'a': (220, 30, 30), 'b': (30, 220, 30), 'c': (30, 30, 220), 'z': (200, 200, 30)}
EMA = ('average={enabled: true, decay: 0.9, warmup: false}', 'trainer.max_epochs=3')


class ClassNames(ProgramTest):
    def setUp(self):
        super().setUp()
        for phase, count in (('train', 6), ('val', 4)):
            for name in 'abc':
                folder = self.dir / 'abc' / phase / name
                folder.mkdir(parents=True)
                for i in range(count): png(folder / f'{i}.png', 32, tuple(c + 3 * i for c in COLOURS[name]))
        self.yaml = self.config(FOLDER.format(dir=self.dir, root='abc', epochs=6) + 'checkpoint: {save_top_k: 1}\n')

    def data(self, name, **renamed):
        """A copy of the folders under other names; None removes one."""
        root = self.dir / name
        for phase in ('train', 'val'):
            for folder in (self.dir / 'abc' / phase).iterdir():
                to = renamed.get(folder.name, folder.name)
                if to is not None: shutil.copytree(folder, root / phase / to)
        return f'data.root={root}'

    def trained(self, *args):
        self.assertDone(train_app(self.yaml, *args))
        return self.dir / 'out/run/version_0'

    def eval(self, run, *args): return json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run, *args, '--json')))

    def test_evaluations_match_classes_by_name(self):
        run = self.trained()
        self.assertEqual(self.eval(run)['acc1'], 100)
        # Without its first class, the others would get the wrong numbers.
        found = self.eval(run, self.data('bc', a=None))
        self.assertEqual(found['acc1'], 100)
        self.assertFails(npu_tool('eval', '--checkpoint', run, self.data('acz', b='z')), 3, 'the classes z are not among the 3 of the model: a, b, c')

    def test_a_resumed_run_has_the_classes_of_its_checkpoint(self):
        run = self.trained('trainer.max_epochs=1')
        before = (run / 'history.json').read_bytes()
        more = ('trainer.max_epochs=2', '--resume', 'auto')
        self.assertFails(train_app(self.yaml, *more, self.data('acz', b='z')), 6, 'new: z; missing: b', 'model.weights=')
        self.assertFails(train_app(self.yaml, *more, self.data('bac', a='b', b='a0')), 6, 'new: a0; missing: a')
        self.assertEqual((run / 'history.json').read_bytes(), before)
        self.assertDone(train_app(self.yaml, *more))

    def test_fine_tuning_moves_the_outputs_by_name(self):
        run = self.trained()
        head = lambda r: {k: v[2] for k, v in safetensors_of(r / 'checkpoints/last/model.safetensors').items() if k.startswith('heads.')}
        rows = lambda r, name: [head(r)[name][i * len(head(r)[name]) // 3:(i + 1) * len(head(r)[name]) // 3] for i in range(3)]
        for name, data, pairs, said in (('acz', self.data('acz', b='z'), {0: 0, 1: 2}, 'outputs of 2 of 3 classes, by name (new: z; missing: b)'),
                                        ('cab', self.data('cab', c='a', a='b', b='c'), {0: 0, 1: 1, 2: 2}, '')):
            out, err = train_app(self.yaml, data, f'model.weights={run}', 'optimizer.lr=0', 'trainer.max_epochs=1', f'output.name={name}')[1:]
            self.assertIn(said, out + err)
            tuned = self.dir / f'out/{name}/version_0'
            for here, there in pairs.items():
                for tensor in head(run): self.assertEqual(rows(tuned, tensor)[here], rows(run, tensor)[there], (name, here, tensor))
            if name == 'acz': self.assertNotIn(rows(tuned, 'heads.head.weight')[2], rows(run, 'heads.head.weight'))

    def test_the_number_of_classes_is_that_of_the_data(self):
        for number in (2, 5, 1000): self.assertFails(train_app(self.yaml, f'model.num_classes={number}'), 2, 'model.num_classes', f'{number} classes and the data 3')
        self.assertFails(train_app(self.yaml, 'model.num_classes=2', 'model.allow_unused_classes=true'), 2, '2 classes and the data 3')
        run = self.trained('model.num_classes=5', 'model.allow_unused_classes=true', 'trainer.max_epochs=2')
        self.assertIn('acc1', self.eval(run))
        self.assertFalse((self.dir / 'out/run/version_1').exists())

    def test_numeric_labels_far_above_the_samples_are_refused(self):
        texts = self.dir / 'labels.jsonl'
        texts.write_text('{"text": "ab", "label": 0}\n' * 60 + '{"text": "ab", "label": 16777215}\n')
        text = lambda *args: train_app(self.config(f'''
device: cpu
precision: 32-true
model: {{name: bert_tiny, context: 16, layers: 1}}
data: {{name: documents, train: {texts}, context: 16, batch_size: 4, num_workers: 0}}
task: {{name: classifier}}
trainer: {{max_steps: 1, threads: 1}}
output: {{dir: ""}}
''', name='t.yaml'), *args)
        self.assertFails(text(), 3, 'labels.jsonl, line 61', '16,777,216 classes', '61 samples')
        texts.write_text('{"text": "ab", "label": 999}\n' * 8)
        self.assertDone(text())

    def test_predictions_name_their_checkpoint_and_finish_the_readable_images(self):
        run = self.trained('trainer.max_epochs=2')
        self.assertIn('the last of this run', self.eval(run)['why'])
        folder = self.dir / 'abc/val'
        (folder / 'a/broken.png').write_bytes(b'no image')
        code, out, err = npu_tool('predict', '--checkpoint', run, '--logits', self.dir / 'l.npy', '--json', folder)
        self.assertEqual(code, 3)
        self.assertIn('1 of 13 images cannot be read', err)
        self.assertIn('broken.png', err)
        found = json.loads(out)
        self.assertEqual(found['checkpoint'], str((run / 'checkpoints/last').resolve()))
        self.assertIn('the last of this run', found['why'])
        by_image = {p['image']: p for p in found['predictions']}
        self.assertEqual(len(by_image), 13)
        self.assertEqual([p for p in by_image if 'error' in by_image[p]], [str(folder / 'a/broken.png')])
        self.assertEqual({by_image[str(folder / f'{c}/0.png')]['top'][0]['name'] for c in 'abc'} - set('abc'), set())
        self.assertIn(b"'shape': (13, 3)", (self.dir / 'l.npy').read_bytes()[:128])
        text = npu_tool('predict', '--checkpoint', run, folder / 'a')[1]
        self.assertIn(f'checkpoint {(run / "checkpoints/last").resolve()} (the last of this run; ', text)
        self.assertIn('broken.png\n  cannot be read\n', text)
        # The weights of a run also bring the names of its classes.
        named = json.loads(self.assertDone(npu_tool('predict', '--model', 'vit', 'model.patch_size=8', 'model.dim=32', 'model.depth=1', 'model.heads=2', 'model.mlp_dim=64', 'model.image_size=32',
                                                    '--num-classes', '3', '--weights', run, '--json', folder / 'a/0.png')))
        self.assertEqual({a['name'] for a in named['predictions'][0]['top']}, set('abc'))
        (self.dir / 'empty').mkdir()
        self.assertFails(npu_tool('predict', '--checkpoint', run, self.dir / 'empty'), 3, 'contains no .jpg')

    def test_a_summary_has_the_sizes_of_the_data(self):
        found = json.loads(self.assertDone(npu_tool('summary', self.yaml, '--json')))
        self.assertEqual((found['input_shape'], found['layers'][-1]['output_shape']), ([1, 3, 32, 32], [1, 3]))
        code, out, err = npu_tool('summary', self.yaml, 'data.root=/nowhere')
        self.assertEqual(code, 0, err)
        self.assertFails(train_app(self.yaml, 'model.weights=torchvision://vit_b16'), 2, 'did you mean torchvision://vit_b_16?')
        self.assertFails(train_app(self.yaml, '--offline', 'model.weights=torchvision://vit_b_16', env={**os.environ, 'TORCH_HOME': str(self.dir)}), 3, 'NPU_TRAIN_OFFLINE', f'{self.dir}/hub/checkpoints/vit_b_16-c867db91.pth')

    def test_weights_are_those_that_were_validated(self):
        """With EMA, these are the averages, whose accuracy is stored with them; the plain weights are used on request."""
        run = self.trained(*EMA)
        last = run / 'checkpoints/last'
        plain = {k: v[2] for k, v in safetensors_of(last / 'model.safetensors').items()}
        average = {k.split('/', 1)[1]: v[2] for k, v in safetensors_of(last / 'ema.safetensors').items()}
        for name, args, wanted in (('default', (), average), ('ema', ('--weights', 'ema'), average), ('plain', ('--weights', 'plain'), plain)):
            file = self.dir / f'{name}.safetensors'
            said = json.loads(self.assertDone(npu_tool('weights', '--from', last, '--to', file, *args, '--json')))
            self.assertEqual(said['weights'], 'plain' if name == 'plain' else 'ema')
            written = {k: v[2] for k, v in safetensors_of(file).items()}
            self.assertEqual(written, {k: wanted[k] for k in written}, name)
            self.assertEqual(set(written), set(plain))
        self.assertNotEqual(plain['conv_proj.weight'], average['conv_proj.weight'])
        # Every command, and the metrics, make the same choice.
        images = sorted((self.dir / 'abc/val').rglob('*.png'))

        def logits(*args):
            self.assertDone(npu_tool('predict', *args, '--device', 'cpu', '--logits', self.dir / 'l.npy', *images))
            return (self.dir / 'l.npy').read_bytes()
        model = ('--model', 'vit', 'model.patch_size=8', 'model.dim=32', 'model.depth=1', 'model.heads=2', 'model.mlp_dim=64', 'model.image_size=32', '--num-classes', '3')
        self.assertNotEqual(logits('--checkpoint', last), logits('--checkpoint', last, '--weights', 'plain'))
        for which in ('ema', 'plain'): self.assertEqual(logits('--checkpoint', last, '--weights', which), logits(*model, '--weights', self.dir / f'{which}.safetensors'))
        validated = json.loads((run / 'history.json').read_text())['epochs'][-1]['val']
        self.assertAlmostEqual(self.eval(last)['loss'], validated['loss'], delta=1e-5)
        self.assertNotAlmostEqual(self.eval(last, '--weights', 'plain')['loss'], validated['loss'], delta=1e-4)
        self.assertFails(npu_tool('eval', '--checkpoint', last, '--weights', 'other'), 2, 'plain, ema')

    @unittest.skipIf(torch is None, 'the Python package torch is not installed')
    def test_the_accuracy_next_to_weights_is_theirs(self):
        run = self.trained(*EMA)
        last, validated = run / 'checkpoints/last', json.loads((run / 'history.json').read_text())['epochs'][-1]['val']
        files = {'ema': 'ema.safetensors', 'plain': 'model.safetensors'}
        for which, accuracy in (('ema', validated['acc1']), ('plain', None)):
            self.assertDone(npu_tool('weights', '--from', last, '--to', self.dir / which, '--as', 'training', '--weights', which))
            saved = torch.load(self.dir / which / 'best_model_epoch_3.pth', weights_only=True)
            self.assertEqual(saved['best_accuracy'], accuracy)
            wanted = {k.removeprefix('average/'): v[2] for k, v in safetensors_of(last / files[which]).items()}['conv_proj.weight']
            self.assertEqual(saved['model_state_dict']['conv_proj.weight'].numpy().tobytes(), wanted)


if __name__ == '__main__': main()
