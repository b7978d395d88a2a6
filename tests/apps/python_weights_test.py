"""Weights from and to torchvision, timm and Hugging Face's transformers: networks with random values, whose logits agree on both sides.
Skipped without the packages. The Python that has them is NPU_TRAIN_MODELS_PYTHON, .venv/models (scripts/setup --dev), or this one."""
import json
import pathlib
import random
import unittest

from images import png_of
from peers import MODELS_PYTHON, Peer
from programs import FULL, SOURCE, ProgramTest, main, npu_tool, run_dir, train_app

PEER = Peer(MODELS_PYTHON, torchvision='import any_torchvision, numpy\nfrom torchvision import models', timm='import timm',
            transformers='from transformers import ResNetForImageClassification, ViTForImageClassification')
SCRIPT = pathlib.Path(__file__).with_name('python_models.py')
LIMIT = 1e-5  # relative to the largest logit
NORMALISE = '[{name: center_crop, size: 32}, {name: normalize, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}]'
VIT = ('--model', 'vit', '--num-classes', '10', 'model.dim=32', 'model.depth=2', 'model.heads=2')


class PythonWeights(ProgramTest):
    def python(self, what, library, jobs):
        (self.dir / 'jobs.json').write_text(json.dumps(jobs))
        code, out, error = PEER.run(SCRIPT, what, library, self.dir / 'jobs.json')
        self.assertEqual(code, 0, out + error)
        return json.loads(out.splitlines()[-1])

    def images(self, side):
        """Three images, as .png for the tool and as raw RGB for Python."""
        source = random.Random(side)
        out = [self.dir / f'{side}_{i}.png' for i in range(3)]
        for path in out:
            pixels = bytes(source.randrange(256) for _ in range(3 * side * side))
            path.write_bytes(png_of(side, pixels))
            path.with_suffix('.rgb').write_bytes(pixels)
        return out

    def network(self, name, files, side, library):
        return {'network': name, 'logits': str(self.dir / f'{name}_logits.pt'), 'files': {str(self.dir / f): kind for f, kind in files.items()},
                'images': [str(i.with_suffix('.rgb')) for i in self.images(side)], 'side': side,
                'model': VIT + ('model.image_size=32', 'model.patch_size=8') + (('model.norm_eps=1e-12',) if library == 'transformers' else ())
                if name == 'vit' else ('--model', name, '--num-classes', '10', f'model.image_size={side}')}

    def predict(self, model, weights, side, logits):
        said = npu_tool('predict', *model, '--weights', weights, '--device', 'cpu', '--logits', logits, *self.images(side))
        self.assertDone(said)
        return said[2]

    def check(self, library, networks, namings, said):
        """Checks predictions with the files of Python, and files that Python loads, for every network."""
        self.python('make', library, networks)
        jobs = []
        for job in networks:
            for file in job['files']:
                predicted = f'{file}.npy'
                self.assertIn(said, self.predict(job['model'], file, job['side'], predicted))
                jobs.append({'name': f'predict {file}', 'predicted': predicted, 'logits': job['logits']})
            ours = self.dir / f'{job["network"]}_ours.safetensors'
            self.assertDone(npu_tool('weights', '--from', file, '--to', ours, '--as', 'torchvision'))
            for end in ('pt', 'safetensors') if job['network'] == 'vit' else ('pt',):
                back = self.dir / f'{job["network"]}_back.{end}'
                self.assertDone(npu_tool('weights', '--from', ours, '--to', back, '--as', namings))
                jobs.append({'name': f'load {back}', 'file': str(back)} | {key: job[key] for key in ('network', 'logits', 'images')})
        return jobs

    def assertAgree(self, library, jobs):
        differences = self.python('load', library, jobs)
        self.assertEqual(len(differences), len(jobs))
        for name, difference in differences.items(): self.assertLess(difference, LIMIT, name)
        print(library, 'largest difference', max(differences.values()))

    @unittest.skipUnless(PEER.has('torchvision'), 'torchvision is not installed (pip install --no-deps torchvision; NPU_TRAIN_MODELS_PYTHON)')
    def test_torchvision(self):
        networks = [self.network('vit', {'vit.pth': 'state_dict', 'vit.pth.tar': 'parallel'}, 32, 'torchvision'),
                    self.network('resnet18', {'resnet18.bin': 'state_dict'}, 64, 'torchvision')]
        if FULL: networks.append(self.network('resnet50', {'resnet50.pt': 'parallel'}, 64, 'torchvision'))
        self.assertAgree('torchvision', self.check('torchvision', networks, 'torchvision', 'names of torchvision'))

    @unittest.skipUnless(PEER.has('torchvision'), 'torchvision is not installed (pip install --no-deps torchvision; NPU_TRAIN_MODELS_PYTHON)')
    def test_names_of_torchvision(self):
        """The table of torchvision://NAME is what torchvision downloads."""
        table = [line.split('\t') for line in (SOURCE / 'src/engine/facts/torchvision_weights.tsv').read_text().splitlines() if not line.startswith('#')][1:]
        ours = [[name, weights, default == '*', f'https://download.pytorch.org/models/{file}'] for name, weights, default, file in table]
        self.assertEqual(ours, self.python('published', 'torchvision', sorted({name for name, *_ in table}, key=[name for name, *_ in table].index)))

    @unittest.skipUnless(PEER.has('timm'), 'timm is not installed (pip install --no-deps timm; NPU_TRAIN_MODELS_PYTHON)')
    def test_timm(self):
        vit = self.network('vit', {'vit.ckpt': 'lightning', 'vit.pth': 'state_dict'}, 32, 'timm')
        # Adds position embeddings for other image sizes, and patches of other sizes, as timm resizes them.
        vit['resized'] = [{'image': image, 'patch': patch, 'logits': str(self.dir / f'{image}_{patch}.pt'), 'images': [str(i.with_suffix('.rgb')) for i in self.images(image)]}
                          for image, patch in ((48, 8), (24, 8), (64, 16), (32, 4), (48, 6))]
        networks = [vit, self.network('resnet50', {'resnet50.pth': 'state_dict'}, 64, 'timm')]
        jobs = self.check('timm', networks[:1], 'timm', 'names of timm') + self.check('timm', networks[1:], 'timm', 'names of torchvision and npu_train, timm')
        for resized in vit['resized']:
            predicted = resized['logits'] + '.npy'
            log = self.predict(VIT + (f'model.image_size={resized["image"]}', f'model.patch_size={resized["patch"]}'), self.dir / 'vit.pth', resized['image'], predicted)
            self.assertIn('resized from', log)
            jobs.append({'name': f'resized {resized["image"]} {resized["patch"]}', 'predicted': predicted, 'logits': resized['logits']})
        self.assertAgree('timm', jobs)

    @unittest.skipUnless(PEER.has('timm'), 'timm is not installed (pip install --no-deps timm; NPU_TRAIN_MODELS_PYTHON)')
    def test_later_vits_of_timm(self):
        """Layer scale, positions of the patches alone, norms of queries and keys, registers, and two heads: each needs its option."""
        options = {'vit_layer_scale': ('layer_scale=1',), 'vit_deit3': ('layer_scale=1',), 'vit_qk_norm': ('qk_norm=true',),
                   'vit_registers': ('registers=3', 'layer_scale=1'), 'vit_distilled': ('distillation=heads',)}
        networks = [self.network('vit', {f'{name}.pth': 'state_dict'}, 32, 'timm') | {'network': name, 'logits': str(self.dir / f'{name}.pt')} for name in options]
        self.python('make', 'timm', networks)
        jobs = []
        for job in networks:
            name, file = job['network'], self.dir / f'{job["network"]}.pth'
            keys = tuple(f'model.{key}' for key in options[name])
            self.predict(job['model'] + keys, file, 32, f'{file}.npy')
            jobs.append({'name': f'predict {name}', 'predicted': f'{file}.npy', 'logits': job['logits']})
            back = self.dir / f'{name}_back.pt'  # translated back to our names
            self.assertDone(npu_tool('weights', '--from', file, '--to', self.dir / 'ours.safetensors', '--as', 'torchvision'))
            self.assertDone(npu_tool('weights', '--from', self.dir / 'ours.safetensors', '--to', back, '--as', 'timm'))
            jobs.append({'name': f'load {name}', 'file': str(back)} | {key: job[key] for key in ('network', 'logits', 'images')})
            for left_out in range(len(keys)):
                some = keys[:left_out] + keys[left_out + 1:]
                result = npu_tool('predict', *job['model'], *some, '--weights', file, '--device', 'cpu', *self.images(32))
                self.assertFails(result, 6, 'tensors of layers that the model does not have: ', keys[left_out].split('=')[0])
        self.assertAgree('timm', jobs)

    @unittest.skipUnless(PEER.has('timm'), 'timm is not installed (pip install --no-deps timm; NPU_TRAIN_MODELS_PYTHON)')
    def test_folders_of_timm_on_the_hub(self):
        """Sizes and heads are those of the architecture's name in config.json."""
        networks = [self.network('vit', {name: 'hub'}, 64 if 'resnet' in name else 32, 'timm') | {'network': name, 'logits': str(self.dir / f'{name}.pt')}
                    for name in ('hub_vit_tiny_patch16_224', 'hub_deit_tiny_distilled_patch16_224', 'hub_resnet18')]
        self.python('make', 'timm', networks)
        jobs = []
        for job in networks:
            folder = self.dir / job['network']
            model = ('--model', 'resnet18', 'model.image_size=64') if 'resnet' in folder.name else ('--model', 'vit')
            self.predict(model, folder, job['side'], folder / 'logits.npy')
            jobs.append({'name': folder.name, 'predicted': str(folder / 'logits.npy'), 'logits': job['logits']})
            config = json.loads((folder / 'config.json').read_text())
            for change in ({'global_pool': 'max'}, {'architecture': config['architecture'].replace('_224', '_clip_224') + 'd'}, {'model_args': {'act_layer': 'relu'}}):
                (folder / 'config.json').write_text(json.dumps(config | change))
                result = npu_tool('predict', *model, '--weights', folder, '--device', 'cpu', *self.images(job['side']))
                self.assertFails(result, 6, ('model_args.act_layer' if 'model_args' in change else list(change)[0]) + ' is ')
        self.assertAgree('timm', jobs)

    @unittest.skipUnless(PEER.has('transformers'), 'transformers is not installed (pip install transformers; NPU_TRAIN_MODELS_PYTHON)')
    def test_hugging_face(self):
        networks = [self.network('vit', {'vit.bin': 'state_dict', 'shards': 'shards', 'pretrained': 'pretrained'}, 32, 'transformers'),
                    self.network('resnet18', {'resnet18': 'pretrained'}, 64, 'transformers')]
        if FULL: networks.append(self.network('resnet50', {'resnet50.bin': 'state_dict'}, 64, 'transformers'))
        jobs = self.check('transformers', networks, 'hf', 'names of Hugging Face')
        self.assertGreater(len(list((self.dir / 'pretrained').glob('model-*.safetensors'))), 1)
        self.assertAgree('transformers', jobs)

    def folder(self, side=32, count=8):
        """An image folder whose training images are one batch: the raw images of that batch and their labels."""
        source, batch = random.Random(5), []
        for phase, label, i in ((p, c, i) for p in ('train', 'val') for c in range(2) for i in range(count)):
            pixels = bytes(source.randrange(200) + 50 * label for _ in range(3 * side * side))
            path = self.dir / 'images' / phase / str(label) / f'{i}.png'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png_of(side, pixels))
            if phase == 'train':
                raw = self.dir / f'{label}_{i}.rgb'
                raw.write_bytes(pixels)
                batch.append((str(raw), label))
        return batch

    @unittest.skipUnless(PEER.has('torchvision'), 'torchvision is not installed (pip install --no-deps torchvision; NPU_TRAIN_MODELS_PYTHON)')
    def test_a_pytorch_loop_goes_on(self):
        """Three epochs of one batch here, then as many in PyTorch and here: equal losses."""
        images = self.folder()
        data = f'data={{name: image_folder, root: {self.dir}/images, batch_size: {len(images)}, num_workers: 0, train_transforms: {NORMALISE}, val_transforms: {NORMALISE}}}'
        vit = '{name: vit, image_size: 32, patch_size: 8, dim: 32, depth: 2, heads: 2, num_classes: 10, allow_unused_classes: true}'
        jobs, expected = [], {}
        for name, network, model, optimizer in (('sgd', 'vit', vit, '{name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.01}'),
                                                ('nesterov', 'resnet18', '{name: resnet18, num_classes: 10, allow_unused_classes: true}', '{name: sgd, lr: 0.001, momentum: 0.9, nesterov: true}'),
                                                ('adamw', 'vit', vit, '{name: adamw, lr: 0.001, weight_decay: 0.1, no_decay: true}'),
                                                ('split', 'vit', vit.replace('}', ', qkv: split}'), '{name: adamw, lr: 0.001, weight_decay: 0.1, no_decay: true}')):
            config = (self.config('device: cpu\nprecision: 32-true\ntrainer: {threads: 1}\ncheckpoint: {every_n_epochs: 3}\n'), data, f'model={model}', f'optimizer={optimizer}', f'output.dir={self.dir}/{name}')
            self.assertDone(train_app(*config, 'trainer.max_epochs=3'))
            checkpoint = run_dir(self.dir / name) / 'checkpoints' / 'last'
            code, out, err = npu_tool('weights', '--from', checkpoint, '--to', self.dir / name / 'torch', '--as', 'training', '--json')
            self.assertEqual(code, 0, out + err)
            file, history = (self.dir / name / 'torch' / f for f in ('best_model_epoch_3.pth', 'training_history.pth'))
            self.assertEqual(json.loads(out)['files'], [str(file), str(history)])
            jobs.append({'name': name, 'network': network, 'file': str(file), 'history': str(history), 'optimizer': optimizer[7:optimizer.index(',')], 'steps': 3,
                         'no_decay': 'no_decay' in optimizer, 'images': [path for path, _ in images], 'labels': [label for _, label in images]})
            self.assertDone(train_app(*config, 'trainer.max_epochs=6', '--resume', 'last'))
            expected[name] = json.loads((run_dir(self.dir / name) / 'history.json').read_text())['epochs']
        for name, result in self.python('train', 'torchvision', jobs).items():
            losses = [epoch['train']['loss'] for epoch in expected[name]]
            self.assertEqual(result['history'], {'train_loss': losses[:3], 'train_acc': [e['train']['acc1'] for e in expected[name][:3]],
                                                 'val_loss': [e['val']['loss'] for e in expected[name][:3]], 'val_acc': [e['val']['acc1'] for e in expected[name][:3]]})
            self.assertEqual((result['epoch'], result['best_accuracy']), (3, expected[name][2]['val']['acc1']))
            worst = max(abs(a - b) / b for a, b in zip(result['losses'], losses[3:], strict=True))
            print(name, 'largest relative difference of losses', worst)
            self.assertLess(worst, LIMIT, name)
            self.assertGreater(abs(losses[5] - losses[3]) / losses[3], 1e-3, 'the network does not learn, so equal losses show nothing')


if __name__ == '__main__': main()
