"""Unusable input: the exit code, the message, and that no existing checkpoint changes."""
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

from images import cifar10, jpeg, png
from programs import ProgramTest, SMALL, checkpoints, main, npu_tool, run_dir, train_app, tree

USAGE, DATA, CHECKPOINT = 2, 3, 6


def safetensors(path, header, data=b'', length=None):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack('<Q', len(text) if length is None else length) + text + data)
    return path


def pth(path, pickled):
    """An archive as torch.save writes it, around a pickle of our own."""
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('archive/data.pkl', pickled)
        archive.writestr('archive/byteorder', 'little')
        archive.writestr('archive/version', '3\n')
    return path


class Calls:
    """Pickles as a call of `function`, which every reader that executes pickles performs."""
    def __init__(self, function, *arguments): self.call = function, arguments
    def __reduce__(self): return self.call


class BadInput(ProgramTest):
    @classmethod
    def setUpClass(cls):
        """One complete run; the tests work on copies of it."""
        cls._runs = tempfile.TemporaryDirectory(prefix='npu_train_runs_')
        cls.addClassCleanup(cls._runs.cleanup)
        cls.whole = pathlib.Path(cls._runs.name) / 'out'
        config = pathlib.Path(cls._runs.name) / 'c.yaml'
        config.write_text(SMALL.format(precision='16-mixed', workers=2))
        code, out, err = train_app(config, f'output.dir={cls.whole}', 'trainer.max_epochs=1')
        assert code == 0, out + err

    def setUp(self):
        super().setUp()
        self.beside, _ = self.copy('beside')

    def table(self, rows, folder=None):
        """Checks rows of (name, command, exit code, words of the message); the checkpoints in `folder` must not change."""
        folder = folder or self.beside
        before = {path: tree(path) for path in folder.glob('*/version_0/checkpoints')}
        self.assertTrue(before)
        for name, command, code, *words in rows:
            with self.subTest(name):
                self.assertFails(command(), code, *words)
                for path, content in before.items(): self.assertEqual(tree(path), content)

    def train(self, *args):
        """A row's command: a new run next to a complete one."""
        return lambda: train_app(self.config(), 'trainer.max_epochs=1', f'output.dir={self.beside}', *args)

    def text(self, text):
        """A row's command: training with a file of this text."""
        return lambda: train_app(self.config(text, 'bad.yaml'), f'output.dir={self.beside}')

    def test_configurations(self):
        (self.dir / 'zeros.yaml').write_bytes(bytes(100))
        self.table([
            ('a folder', lambda: train_app(self.dir), USAGE, str(self.dir), 'folder'),
            ('not YAML', self.text('model: {name: vit_tiny\ndata: ]'), USAGE, 'bad.yaml:2:', 'invalid YAML'),
            ('not text', lambda: train_app(self.dir / 'zeros.yaml'), USAGE, 'zeros.yaml'),
            ('not a map', lambda: train_app(self.config('- model\n- data\n', 'bad.yaml')), USAGE, 'bad.yaml:1:', 'a list'),
            ('text for an integer', self.text('trainer: {max_epochs: many}'), USAGE, 'bad.yaml:1:', 'trainer.max_epochs', "'many'"),
            ('a list for a number', self.train('grad_scaler.init_scale=[1, 2]'), USAGE, 'command line', 'init_scale', 'a list'),
            ('yes for true', self.train('average.enabled=yes'), USAGE, 'average.enabled', 'true or false'),
            ('a map for text', self.train('output={name: {a: 1}}'), USAGE, 'output.name', 'a map'),
            ('out of range', self.train('average.decay=1.5'), USAGE, 'average.decay', "'1.5'", 'between 0 and 1'),
            ('no such choice', self.train('precision=fp16'), USAGE, 'precision', "'fp16'", '16-mixed'),
            ('unknown key', self.text('trainer: {max_epoch: 3}'), USAGE, 'bad.yaml:1:', 'trainer.max_epoch', "did you mean 'max_epochs'"),
            ('unknown key of a part', self.train('optimizer={name: sgd, momentun: 0.9}'), USAGE, "did you mean 'momentum'"),
            ('unknown section', self.train('chekpoint.save_top_k=1'), USAGE, "did you mean 'checkpoint'"),
            ('a name of another tool', self.train('trainer.epochs=3'), USAGE, 'the name here is max_epochs'),
            ('unknown model', self.train('model={name: vit_tinny}'), USAGE, 'vit_tiny'),
            ('unknown transform', self.train('data.train_transforms=[horizontal_flop]'), USAGE, 'horizontal_flip'),
            ('two errors', self.text('seed: x\ntrainer: {threads: y}'), USAGE, '2 errors', 'bad.yaml:1:', 'bad.yaml:2:'),
        ])

    def test_what_was_likely_meant(self):
        config = self.config(precision='32-true')
        out = f'output.dir={self.dir}/out'

        def written(name, text):
            path = self.dir / name
            path.write_text(text)
            return lambda: train_app(path)

        self.table([
            ('a GPU', lambda: train_app(config, out, 'device=gpu'), USAGE, "'gpu' is not a device", 'write cuda'),
            ('a key without its section', lambda: train_app(config, out, 'lr=0.1'), USAGE, 'lr: no such key; did you mean optimizer.lr?'),
            ('a name of others', lambda: train_app(config, out, 'epochs=3'), USAGE, 'did you mean trainer.max_epochs?'),
            ('dashes', lambda: train_app(config, out, '--lr=3'), USAGE, 'without dashes: optimizer.lr=3'),
            ('dashes and a blank', lambda: train_app(config, out, '--trainer.max_epochs', '3'), USAGE, 'without dashes: trainer.max_epochs=3'),
            ('dashes before a key of the top level', lambda: train_app(config, out, '--seed=3'), USAGE, 'without dashes: seed=3'),
            ('a misspelt subcommand', lambda: npu_tool('evla', '--checkpoint', 'run'), USAGE, "hint: did you mean 'eval'?"),
            ('a misspelt subcommand of data', lambda: npu_tool('data', 'shw'), USAGE, "hint: did you mean 'show'?"),
            ('a misspelt option', lambda: npu_tool('compare', 'a', 'b', '--hmtl=x.html'), USAGE, "hint: did you mean '--html'?"),
            ('a misspelt option that is required', lambda: npu_tool('eval', '--chekpoint', 'run'), USAGE, "hint: did you mean '--checkpoint'?"),
            ('an option for the configuration', lambda: train_app('--config', config), USAGE, f'without an option: {config}'),
            ('dashes inside', lambda: train_app(config, out, '--batch-size=3'), USAGE, 'without dashes: data.batch_size=3'),
            ('blanks', lambda: train_app(config, out, 'trainer.max_epochs', '=', '3'), USAGE, 'write trainer.max_epochs=3'),
            ('a blank after =', lambda: train_app(config, out, 'trainer.max_epochs=', '3'), USAGE, 'write trainer.max_epochs=3'),
            ('a blank before =', lambda: train_app(config, out, 'trainer.max_epochs', '=3'), USAGE, 'write trainer.max_epochs=3'),
            ('the name of others in its section', self.train('optimizer.learning_rate=1'), USAGE, 'command line: optimizer.learning_rate: no such key; the name here is lr'),
            ('a key of another section', self.train('trainer.batch_size=8'), USAGE, 'trainer.batch_size: no such key; the key is data.batch_size'),
            ('a model by override', self.train('model.name=vit_tinny'), USAGE, "command line: model.name: no model has the name 'vit_tinny'; did you mean 'vit_tiny'? There are: vit_tiny, "),
            ('a metric', written('metric.yaml', 'model: resnet18\ntask:\n  metrics: [acuracy]\n'), USAGE, "metric.yaml:3:13: task.metrics.0.name: no metric has the name 'acuracy'"),
            ('a folder above', self.train('output.name=../../x'), USAGE, "command line: output.name: '../../x' leads out of output.dir"),
            ('a tab', written('tab.yaml', 'trainer:\n\tmax_epochs: 3\n'), USAGE, 'line 2 is indented with a tab; YAML allows only spaces'),
            ('a tab later', written('later.yaml', 'trainer:\n  max_epochs: 3\n\tthreads: 1\n'), USAGE, 'line 3 is indented with a tab'),
            ('a precision of others', lambda: train_app(config, out, 'precision=fp16'), USAGE, 'the name here is 16-mixed'),
        ])
        self.assertFalse((self.dir / 'out').exists())
        self.assertDone(train_app(config, out, 'early_stopping=', 'trainer.max_epochs=1'))  # an empty value is allowed

    def test_a_last_batch_of_one_sample_that_batch_norm_cannot_normalise(self):
        run = ['model={name: resnet18, stem: imagenet}', 'data={name: generated, train_size: 9, val_size: 8, batch_size: 8, num_workers: 0}',
               'trainer={max_epochs: 1, threads: 1}', f'output.dir={self.dir}/out', 'average={}']
        config = self.config(precision='32-true')
        self.assertFails(train_app(config, *run), USAGE, 'more than one value per channel', 'data.drop_last=true')
        self.assertDone(train_app(config, *run, 'data.drop_last=true'))

    def test_a_metric_that_is_none_leaves_no_folder(self):
        for words in (['checkpoint.monitor=val/acc2'], ['early_stopping={enabled: true, monitor: val/acc2}']):
            self.assertFails(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', *words), USAGE, "no metric 'val/acc2'", 'acc1')
            self.assertFalse((self.dir / 'out').exists())

    def test_an_incomplete_launch_is_refused(self):
        config = self.config(precision='32-true')
        plain = {k: v for k, v in os.environ.items() if k not in ('RANK', 'WORLD_SIZE') and not k.startswith('SLURM_')}
        out = [config, f'output.dir={self.dir}/out', 'trainer.max_steps=1']
        ranks = {'RANK': '2', 'WORLD_SIZE': '2', 'MASTER_ADDR': 'localhost', 'MASTER_PORT': '29500'}
        self.assertFails(train_app(*out, env=plain | ranks), USAGE, "RANK is '2'")
        self.assertFails(train_app(*out, env=plain | {'WORLD_SIZE': '2'}), USAGE, 'WORLD_SIZE is 2, but RANK is not set')
        self.assertFalse((self.dir / 'out').exists())
        for more in ({'WORLD_SIZE': '1'}, {'SLURM_NTASKS': '4'}, {'SLURM_STEP_ID': '0', 'SLURM_PROCID': '0', 'SLURM_NTASKS': '1'}):
            self.assertDone(train_app(*out, env=plain | more))
        self.assertDone(train_app(config, '--print-config', env=plain | {'WORLD_SIZE': '2'}))

    def test_pairs_that_cannot_be(self):
        self.table([
            ('a loss scale without fp16', self.train('grad_scaler.enabled=true', 'precision=32-true'), USAGE, 'grad_scaler', '32-true'),
            ('a first scale under the floor', self.train('grad_scaler={init_scale: 2, min_scale: 4}'), USAGE, 'init_scale', 'min_scale'),
            ('patches that do not fill the image', self.train('model.patch_size=5'), USAGE, 'patch_size', '32'),
            ('heads that do not share the width', self.train('model.heads=3'), USAGE, 'heads', '32'),
            ('warm-up in the other unit', self.train('lr_scheduler.warmup_epochs=2'), USAGE, 'warmup_epochs', 'interval'),
            ('a batch larger than the data', self.train('data.batch_size=400'), USAGE, '400', '320'),
            ('a schedule without an end', self.train('trainer.max_epochs=-1', 'lr_scheduler={name: cosine}'), USAGE, 'T_max'),
            ('an unknown metric', self.train('early_stopping={enabled: true, monitor: val/acc2}'), USAGE, 'val/acc2', 'acc1'),
            ('classes fewer than the data has', self.train('model.num_classes=7'), USAGE, '7', '10'),
        ])

    def test_images_that_cannot_be_read(self):
        root = self.dir / 'images'
        for split, count in (('train', 8), ('valid', 4)):
            for k, kind in enumerate(('cat', 'dog')):
                (root / split / kind / 'more').mkdir(parents=True)
                for i in range(count): (root / split / kind / 'more' / f'{i}.jpg').write_bytes(jpeg(64, 10 * k + i))
        bad = [root / 'train' / 'dog' / 'more' / '3.jpg', root / 'valid' / 'cat' / 'more' / '0.jpg']
        data = f'data={{name: image_folder, root: {root}, batch_size: 4, image_size: 32, num_workers: 2}}'
        config = self.config(precision='32-true')

        def check(*words):
            result = npu_tool('data', 'check', config, data, '--json', *words)
            return result[0], json.loads(result[1])
        code, said = check()
        self.assertEqual((code, said['summary']), (0, '16 + 8 images, 2 classes, 24 of the images are in subfolders'))
        self.assertEqual(said['classes'], [{'class': 'cat', 'train': 8, 'val': 4}, {'class': 'dog', 'train': 8, 'val': 4}])
        (root / 'train' / 'cat' / 'a.gif').write_bytes(b'x')
        for path in bad: path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])
        code, said = check()
        self.assertEqual((code, [b['place'] for b in said['bad']]), (7, [str(p) for p in bad]))
        text = npu_tool('data', 'check', config, data)[1]
        for words in ('2 of 24 samples cannot be read', str(bad[0]), str(bad[1]), 'data.on_bad_sample=skip', '1 file skipped (1 .gif)'):
            self.assertIn(words, text)

        train = [config, data, f'output.dir={self.dir}/out', 'model.num_classes=2', 'model.image_size=32', 'trainer.max_epochs=2']
        self.assertFails(train_app(*train, 'trainer.num_sanity_val_steps=0'), DATA, '3.jpg')
        code, out, log = train_app(*train, 'data.on_bad_sample=skip')
        self.assertEqual(code, 0, log)
        self.assertIn('data: 16 + 8 images, 2 classes, 24 of the images are in subfolders, 1 file skipped (1 .gif)', log)
        self.assertIn('1 of 16 samples could not be read and were omitted from epoch 1', log)
        self.assertIn('1 of 8 samples could not be read', log)
        self.assertIn('omitted: ', log)

    def test_data(self):
        def cifar(root): return self.train(f'data={{name: cifar10, root: {root}, batch_size: 4, num_workers: 2}}')

        def folder(root): return self.train(f'data={{name: image_folder, root: {root}, batch_size: 2, image_size: 32, num_workers: 2}}',
                                            'model.num_classes=2')

        def damaged(name, file, change):
            root = cifar10(self.dir / name)
            (root / file).write_bytes(change((root / file).read_bytes()))
            return root

        def label(data): return data[:3073 * 3] + b'\xc8' + data[3073 * 3 + 1:]

        def images(name):
            for k, kind in enumerate(('cat', 'dog')):
                (self.dir / name / 'train' / kind).mkdir(parents=True)
                for i in range(3): (self.dir / name / 'train' / kind / f'{i}.jpg').write_bytes(jpeg(256, 10 * k + i))
            return self.dir / name

        self.assertDone(cifar(cifar10(self.dir / 'good'))())  # without the damage below, the data are readable
        self.assertDone(folder(images('whole'))())
        half = images('half') / 'train' / 'dog' / '1.jpg'
        half.write_bytes(half.read_bytes()[:half.stat().st_size // 2])
        text = images('text') / 'train' / 'dog' / '2.jpg'
        text.write_text('not an image')
        shutil.rmtree(images('empty') / 'train' / 'cat')
        (self.dir / 'empty' / 'train' / 'cat').mkdir()

        self.table([
            ('no CIFAR', cifar(self.dir / 'nowhere'), DATA, 'nowhere', 'get_data', 'generated'),
            ('no folder', folder(self.dir / 'nowhere'), DATA, 'nowhere', 'data.root'),
            ('a part of CIFAR', cifar(damaged('part', 'test_batch.bin', lambda d: b'')), DATA, 'test_batch.bin', '0 bytes'),
            ('a truncated file of CIFAR', cifar(damaged('short', 'data_batch_3.bin', lambda d: d[:-100])), DATA, 'data_batch_3.bin', 'truncated'),
            ('a label of 200', cifar(damaged('label', 'data_batch_2.bin', label)), DATA, 'data_batch_2.bin', 'record 3', '200'),
            ('half a JPEG', folder(self.dir / 'half'), DATA, str(half), 'damaged'),
            ('text for a JPEG', folder(self.dir / 'text'), DATA, str(text)),
            ('a class without images', folder(self.dir / 'empty'), DATA, 'train/cat'),
        ])

    # ---- checkpoints ----

    def copy(self, name):
        """A copy of the complete run: (output.dir, its last checkpoint)."""
        out = self.dir / name
        shutil.copytree(self.whole, out, symlinks=True)
        return out, (run_dir(out) / 'checkpoints' / 'last').resolve()

    def resume(self, out, *args): return lambda: train_app(self.config(), f'output.dir={out}', '--resume', 'last', *args)

    def eval(self, out): return lambda: npu_tool('eval', '--checkpoint', run_dir(out))

    def predict(self, out): return lambda: npu_tool('predict', '--checkpoint', run_dir(out), self.image())

    def image(self):
        png(self.dir / 'a.png', 32, (200, 10, 10))
        return self.dir / 'a.png'

    def damaged(self, name, damage, *words, also=()):
        """The last checkpoint damaged by `damage(folder)`: continuing from it fails, and so does each way of `also`."""
        out, checkpoint = self.copy(name.replace(' ', '_').replace('/', '_'))
        damage(checkpoint)
        self.table([(f'{name}: {how.__name__}', how(out), CHECKPOINT, *words) for how in (self.resume, *also)], out)

    def test_a_whole_checkpoint_is_read_in_each_way(self):
        out, _ = self.copy('copy')
        for how in (self.resume, self.eval, self.predict): self.assertDone(how(out)())

    def test_a_byte_of_a_file_flipped(self):
        def flip(file, at):
            data = bytearray(file.read_bytes())
            data[at if at >= 0 else len(data) + at] ^= 1
            file.write_bytes(data)
        for name in ('model.safetensors', 'optimizer.safetensors', 'ema.safetensors', 'rng.safetensors', 'state.json', 'config.yaml'):
            also = (self.eval, self.predict) if name in ('model.safetensors', 'ema.safetensors') else ()
            for at in (12, -1): self.damaged(f'{name} {at}', lambda folder: flip(folder / name, at), name, also=also)

    def test_a_file_missing_cut_or_grown(self):
        files = [f['name'] for f in checkpoints(self.whole)[-1]['files']]
        self.assertEqual(len(files), 6)
        for name in files: self.damaged(f'no {name}', lambda folder: (folder / name).unlink(), name, also=(self.eval, self.predict))
        model = 'model.safetensors'
        self.damaged('cut', lambda folder: os.truncate(folder / model, 1000), model, also=(self.eval, self.predict))
        self.damaged('grown', lambda folder: (folder / model).open('ab').write(b'\0'), model, also=(self.eval, self.predict))
        self.damaged('no manifest', lambda folder: (folder / 'manifest.json').unlink(), 'no checkpoint', also=(self.eval, self.predict))

    def test_config_yaml_damaged(self):
        def rewritten(change): return lambda folder: (folder / 'config.yaml').write_text(change((folder / 'config.yaml').read_text()))

        def swap(old, new):
            def change(text):
                self.assertIn(old, text)
                return text.replace(old, new, 1)
            return rewritten(change)
        every = {'also': (self.eval, self.predict)}
        self.damaged('no YAML', rewritten(lambda text: '{a: ['), 'config.yaml', **every)
        self.damaged('empty', rewritten(lambda text: ''), 'config.yaml', **every)
        self.damaged('cut in half', rewritten(lambda text: text[:len(text) // 2]), 'config.yaml', **every)
        self.damaged('unknown model', swap('vit_tiny_cifar10', 'vit_tiny_cifar11'), 'config.yaml', **every)
        self.damaged('unknown key', swap('dropout:', 'dropuot:'), 'config.yaml', **every)
        self.damaged('another width', swap('dim: 32', 'dim: 64'), 'config.yaml', **every)
        self.damaged('another seed', swap('seed: 7', 'seed: 8'), 'config.yaml', **every)  # readable, but changed

    def test_the_manifest_changed(self):
        def changed(change):
            def damage(folder):
                # Writes format 1, which has no checksum of the manifest itself.
                manifest = json.loads((folder / 'manifest.json').read_text()) | {'format': 1}
                change(manifest)
                (folder / 'manifest.json').write_text(json.dumps(manifest))
            return damage
        every = {'also': (self.eval, self.predict)}
        self.damaged('newer', changed(lambda m: m.update(format=99)), 'format', 'newer', **every)
        self.damaged('no JSON', lambda folder: (folder / 'manifest.json').write_text('{"format": 1,'), 'manifest.json', **every)
        self.damaged('no list of files', changed(lambda m: m.pop('files')), 'files', **every)
        self.damaged('empty list of files', changed(lambda m: m['files'].clear()), 'files does not list', **every)
        self.damaged('a file less', changed(lambda m: m['files'].pop(0)), 'files does not list', **every)
        self.damaged('the largest counter', changed(lambda m: m.update(serial=2**63 - 1)), 'serial', **every)
        self.damaged('one digit', lambda folder: self.edit(folder / 'manifest.json', '"serial": ', '"serial": 1'), 'checksum', **every)
        secret = self.dir / 'secret'
        secret.write_text('outside')
        self.damaged('leads out', changed(lambda m: m['files'].append({**m['files'][0], 'name': '../../../../../secret'})), 'only names inside', **every)

    def edit(self, path, old, new):
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))

    def test_another_models_checkpoint(self):
        out, _ = self.copy('copy')
        self.table([
            ('another width', self.resume(out, 'model.dim=64'), CHECKPOINT, 'another model', 'other shape'),
            ('another depth', self.resume(out, 'model.depth=2'), CHECKPOINT, 'another model', 'missing'),
            ('another optimizer', self.resume(out, 'optimizer={name: sgd}'), CHECKPOINT, 'adamw', 'sgd'),
        ], out)

    # ---- weights ----

    def weights(self, path):
        """Commands that read the weights: the tool, which must leave no file, and a run that starts from them."""
        def tool():
            result = npu_tool('weights', '--from', path, '--to', self.dir / 'made.safetensors')
            self.assertFalse((self.dir / 'made.safetensors').exists())
            return result
        return [tool, self.train(f'model.weights={path}')]

    def test_weights_of_another_network(self):
        checkpoint = run_dir(self.beside)
        made = self.dir / 'made.safetensors'
        self.assertDone(npu_tool('weights', '--from', checkpoint, '--to', made))
        self.assertDone(train_app(self.config(), 'trainer.max_epochs=1', 'output.dir=""', f'model.weights={checkpoint}', 'model.num_classes=12', 'model.allow_unused_classes=true'))
        predict = ('predict', '--model', 'vit_tiny_cifar10', '--num-classes', '10', '--weights', made, '--device', 'cpu', self.image())
        hint = 'model.weights_strict=false'
        self.table([
            ('another width', self.train(f'model.weights={checkpoint}', 'model.dim=64'), CHECKPOINT, 'another network', 'misshapen', hint),
            ('of a file', self.train(f'model.weights={made}', 'model.dim=64'), CHECKPOINT, made.name, 'another network'),
            ('another depth', self.train(f'model.weights={checkpoint}', 'model.depth=2'), CHECKPOINT, 'missing', 'encoder_layer_1', hint),
            ('in a prediction', lambda: npu_tool(*predict), CHECKPOINT, 'misshapen'),
            ('in an evaluation', lambda: npu_tool('eval', '--checkpoint', checkpoint, 'model.dim=64'), CHECKPOINT, 'other shape'),
        ])
        code, out, err = train_app(self.config(), 'trainer.max_epochs=1', 'output.dir=""', f'model.weights={checkpoint}', 'model.depth=2', hint)
        self.assertEqual(code, 0, out + err)
        self.assertIn('warning: weights: ', err)
        one = {'encoder.ln.weight': {'dtype': 'F32', 'shape': [192], 'data_offsets': [0, 768]}}
        part = safetensors(self.dir / 'part.safetensors', one, bytes(768))
        code, out, err = npu_tool('weights', '--from', part, '--model', 'vit_tiny_cifar10', '--num-classes', '10', '--json')
        self.assertEqual((code, json.loads(out)['fits']), (7, False), err)

    def test_safetensors_that_lie_about_sizes(self):
        def one(shape, offsets): return {'w': {'dtype': 'F32', 'shape': shape, 'data_offsets': offsets}}

        def pair(a, b): return {name: {'dtype': 'F32', 'shape': [1], 'data_offsets': at} for name, at in (('a', a), ('b', b))}
        made = {
            'no header': (b'', '0 bytes'), 'cut in the length': (b'\x10\0\0', '3 bytes'),
            'header longer than the file': ('{}', b'', 1000, '1000 bytes in a file of'),
            'header of exabytes': ('{}', b'', 1 << 62, 'header'),
            'data beyond the end': (one([64], [0, 256]), bytes(16), None, "'w' occupies bytes 0 to 256 of 16"),
            'offsets the wrong way': (one([4], [16, 0]), bytes(16), None, "'w' occupies bytes 16 to 0"),
            'offsets below zero': (one([4], [-16, 0]), bytes(16), None, "'w' occupies bytes -16"),
            'shape larger than the data': (one([1000], [0, 16]), bytes(16), None, 'its shape requires 4000'),
            'shape of any memory': (one([1 << 40, 1 << 40], [0, 16]), bytes(16), None, 'larger than any memory'),
            'shape whose product wraps to 16': (one([(1 << 62) + 1, 4], [0, 16]), bytes(16), None, "'w'"),
            'negative shape': (one([-2, -2], [0, 16]), bytes(16), None, 'negative'),
            'overlapping tensors': (pair([0, 4], [2, 6]), bytes(6), None, 'overlaps'),
            'a hole': (pair([0, 4], [8, 12]), bytes(12), None, 'gap'),
            'bytes of no tensor': (one([4], [0, 16]), bytes(24), None, 'belong to no tensor'),
        }
        good = safetensors(self.dir / 'good.safetensors', one([4], [0, 16]), bytes(16))
        self.assertDone(npu_tool('weights', '--from', good))
        rows = []
        for k, (name, (*content, word)) in enumerate(made.items()):
            path = self.dir / f'{k}.safetensors'
            if len(content) == 1: path.write_bytes(content[0])
            else: safetensors(path, *content)
            rows += [(name, command, CHECKPOINT, path.name, word) for command in self.weights(path)]
        self.table(rows)

    def test_an_index_that_is_wrong(self):
        one = {'encoder.ln.weight': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]}}
        safetensors(self.dir / 'a.safetensors', one, bytes(16))
        safetensors(self.dir / 'b.safetensors', one, bytes(16))
        index = self.dir / 'model.safetensors.index.json'
        made = {
            'outside': ({'w': '../a.safetensors'}, 'not next to the index'),
            'absolute': ({'w': str(self.dir / 'a.safetensors')}, 'not next to the index'),
            'itself': ({'w': index.name}, 'not a file of weights'),
            'a shard missing': ({'w': 'a.safetensors', 'v': 'c.safetensors'}, "'c.safetensors' is missing"),
            'a tensor twice': ({'encoder.ln.weight': 'a.safetensors', 'v': 'b.safetensors'}, "is in 'a.safetensors' and in 'b.safetensors'"),
            'a tensor missing': ({'w': 'a.safetensors'}, "'w' is not in 'a.safetensors'"),
        }
        for name, (files, word) in made.items():
            index.write_text(json.dumps({'weight_map': files}))
            self.table([(name, command, CHECKPOINT, index.name, word) for command in self.weights(index)])
        for text in ('', '{', '[]', '{"weight_map": 3}', '{"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}}'):
            index.write_text(text)
            self.table([(text, command, CHECKPOINT, index.name, 'not an index') for command in self.weights(index)])

    def test_weights_of_a_known_library_with_a_layer_too_many(self):
        made = self.dir / 'timm.safetensors'
        deeper = self.dir / 'deeper'
        self.assertDone(train_app(self.config(), 'trainer.max_epochs=1', f'output.dir={deeper}', 'model.depth=2'))
        self.assertDone(npu_tool('weights', '--from', run_dir(deeper), '--to', made, '--as', 'timm'))
        target = self.dir / 'hf.pt'
        model = ('--model', 'vit_tiny_cifar10', 'model.depth=1', 'model.dim=32', 'model.heads=2', 'model.patch_size=8')
        words = ('tensors of layers', 'blocks.1.', 'model.depth=2')
        self.table([('a layer too many', self.train(f'model.weights={made}'), CHECKPOINT, 'another network', *words)])
        code, out, err = npu_tool('weights', '--from', made, '--to', target, '--as', 'hf', *model)
        self.assertEqual(code, 7, err)
        for word in words: self.assertIn(word, out)
        self.assertFalse(target.exists())
        unknown = safetensors(self.dir / 'unknown.safetensors', {'w': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}, bytes(4))
        self.assertFails(npu_tool('weights', '--from', unknown, '--to', target, '--as', 'hf'), CHECKPOINT, 'not those of a known network')
        self.assertFalse(target.exists())

    def test_a_hostile_pth_is_refused_and_never_executed(self):
        marker = self.dir / 'executed'
        touch = f'touch {marker}'
        pickles = {
            'os.system': (pickle.dumps(Calls(os.system, touch), protocol=2), 'system'),
            'os.system by its name on the stack': (pickle.dumps(Calls(os.system, touch), protocol=4), 'system'),
            'inside a state_dict': (pickle.dumps({'state_dict': {'w': Calls(os.system, touch)}}, protocol=2), 'system'),
            'as a key': (pickle.dumps({Calls(os.system, touch): 1}, protocol=2), 'system'),
            'exec': (pickle.dumps(Calls(exec, f'import os; os.system({touch!r})'), protocol=2), 'exec'),
            'a process': (pickle.dumps(Calls(subprocess.call, ['touch', str(marker)]), protocol=4), 'subprocess'),
        }
        for k, (name, (data, word)) in enumerate(pickles.items()):
            with self.subTest(name):  # if Python executes the pickle, in a separate process, its code does run
                subprocess.run([sys.executable, '-c', f'import pickle; pickle.loads({data!r})'], stderr=subprocess.DEVNULL)
                self.assertTrue(marker.exists())
                marker.unlink()
            path = pth(self.dir / f'{k}.pth', data)
            self.table([(name, command, CHECKPOINT, path.name, word, 'no code is executed') for command in self.weights(path)])
            self.assertFalse(marker.exists(), name)

    def test_files_that_are_no_pth(self):
        whole = pth(self.dir / 'whole.pth', pickle.dumps({}, protocol=2))
        cut = self.dir / 'cut.pth'
        cut.write_bytes(whole.read_bytes()[:-30])
        garbage = self.dir / 'garbage.pth'
        garbage.write_bytes(bytes((i * 89 + 7) % 256 for i in range(5000)))
        empty = self.dir / 'empty.pth'
        empty.touch()
        old = self.dir / 'old.pth'
        # These files begin like files before PyTorch 1.6.
        old.write_bytes(pickle.dumps(0x1950a86a20f9469cfc6c, protocol=2) + pickle.dumps(1001, protocol=2))
        endless = pth(self.dir / 'endless.pth', b'\x80\x02' + b'(' * 100)
        other = self.dir / 'other.pth'
        with zipfile.ZipFile(other, 'w') as archive: archive.writestr('letter.txt', 'hello')
        words = {cut: 'truncated', garbage: 'not a zip archive', empty: 'empty', old: 'truncated', endless: 'is truncated', other: 'data.pkl'}
        self.table([(path.name, command, CHECKPOINT, path.name, word) for path, word in words.items() for command in self.weights(path)])
        self.table([
            ('no such file', lambda: npu_tool('weights', '--from', self.dir / 'none.pth'), DATA, 'none.pth'),
            ('of no known kind', lambda: npu_tool('weights', '--from', self.image()), DATA, 'a.png', '.safetensors'),
            ('weights of nothing here', self.train(f'model.weights={safetensors(self.dir / "other.safetensors", {})}'), CHECKPOINT, 'that fit'),
        ])


if __name__ == '__main__': main()
