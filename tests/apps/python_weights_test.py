"""Weights from and to torchvision, timm and Hugging Face's transformers: networks with random values, whose logits agree on both sides.
Skipped without the packages. The Python that has them is NPU_TRAIN_MODELS_PYTHON, .venv/models (scripts/setup --dev), or this one."""
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

from pictures import png_of
from programs import SOURCE, ProgramTest, main, npu_tool, run

OWN = SOURCE / '.venv/models/bin/python'
PYTHON = os.environ.get('NPU_TRAIN_MODELS_PYTHON') or (str(OWN) if OWN.exists() else sys.executable)
SCRIPT = pathlib.Path(__file__).with_name('python_models.py')
LIMIT = 1e-5  # of the largest logit
VIT = ('--model', 'vit', '--num-classes', '10', 'model.dim=32', 'model.depth=2', 'model.heads=2')


def without(package): return subprocess.run([PYTHON, '-c', f'import torch, importlib.metadata as m; m.version("{package}")'], capture_output=True).returncode != 0


class PythonWeights(ProgramTest):
    def python(self, what, library, jobs):
        (self.dir / 'jobs.json').write_text(json.dumps(jobs))
        code, out, error = run(PYTHON, SCRIPT, what, library, self.dir / 'jobs.json')
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
        """Predictions with the files of Python, and files that Python loads, for every network."""
        self.python('make', library, networks)
        jobs = []
        for job in networks:
            for file in job['files']:
                predicted = f'{file}.npy'
                self.assertIn(said, self.predict(job['model'], file, job['side'], predicted))
                jobs.append({'name': f'predict {file}', 'predicted': predicted, 'logits': job['logits']})
            ours = self.dir / f'{job["network"]}_ours.safetensors'
            self.assertDone(npu_tool('weights', '--from', file, '--to', ours, '--as', 'torchvision'))
            for end in ('pt', 'safetensors'):
                back = self.dir / f'{job["network"]}_back.{end}'
                self.assertDone(npu_tool('weights', '--from', ours, '--to', back, '--as', namings))
                jobs.append({'name': f'load {back}', 'file': str(back)} | {key: job[key] for key in ('network', 'logits', 'images')})
        return jobs

    def assertAgree(self, library, jobs):
        differences = self.python('load', library, jobs)
        self.assertEqual(len(differences), len(jobs))
        for name, difference in differences.items(): self.assertLess(difference, LIMIT, name)
        print(library, 'largest difference', max(differences.values()))

    @unittest.skipIf(without('torchvision'), 'torchvision is not installed (pip install --no-deps torchvision; NPU_TRAIN_MODELS_PYTHON)')
    def test_torchvision(self):
        networks = [self.network('vit', {'vit.pth': 'state_dict', 'vit.pth.tar': 'parallel'}, 32, 'torchvision'),
                    self.network('resnet18', {'resnet18.bin': 'state_dict'}, 64, 'torchvision'), self.network('resnet50', {'resnet50.pt': 'parallel'}, 64, 'torchvision')]
        self.assertAgree('torchvision', self.check('torchvision', networks, 'torchvision', 'names of torchvision'))

    @unittest.skipIf(without('timm'), 'timm is not installed (pip install --no-deps timm; NPU_TRAIN_MODELS_PYTHON)')
    def test_timm(self):
        vit = self.network('vit', {'vit.ckpt': 'lightning', 'vit.pth': 'state_dict'}, 32, 'timm')
        # Positions of other image sizes and patches of other sizes, as timm resizes them.
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

    @unittest.skipIf(without('transformers'), 'transformers is not installed (pip install transformers; NPU_TRAIN_MODELS_PYTHON)')
    def test_hugging_face(self):
        networks = [self.network('vit', {'vit.bin': 'state_dict', 'shards': 'shards', 'pretrained': 'pretrained'}, 32, 'transformers'),
                    self.network('resnet18', {'resnet18': 'pretrained'}, 64, 'transformers'), self.network('resnet50', {'resnet50.bin': 'state_dict'}, 64, 'transformers')]
        jobs = self.check('transformers', networks, 'hf', 'names of Hugging Face')
        self.assertGreater(len(list((self.dir / 'pretrained').glob('model-*.safetensors'))), 1)
        self.assertAgree('transformers', jobs)


if __name__ == '__main__': main()
