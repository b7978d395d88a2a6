"""Images in .tar archives: the samples of the package webdataset, each once on any number of ranks, and resumed runs. The archives are written by
Python's tarfile, and by webdataset where a Python has it (NPU_TRAIN_MODELS_PYTHON, .venv/models, or this one)."""
import csv
import io
import json
import pathlib
import tarfile
import unittest

from images import png_of
from peers import MODELS_PYTHON, Peer
from programs import FULL, ProgramTest, contents, main, npu_tool, train_app

PEER = Peer(MODELS_PYTHON, webdataset='import webdataset')
SCRIPT = pathlib.Path(__file__).with_name('python_webdataset.py')
DATA, CHECKPOINT, FAILED = 3, 6, 7
CONFIG = '''
seed: 3
device: cpu
precision: 32-true
model: {{name: vit, patch_size: 8, dim: 32, depth: 1, heads: 2, mlp_dim: 64}}
data:
  name: webdataset
  root: {dir}
  train: ['train-{{000000..000002}}.tar']
  val: [val-000000.tar]
  num_classes: 3
  image_size: 32
  batch_size: 4
  num_workers: 2
  shuffle_buffer: 5
  train_transforms: &t [{{name: center_crop, size: 32}}, normalize]
  val_transforms: *t
optimizer: {{name: sgd, lr: {lr}, momentum: 0}}
trainer: {{max_epochs: 1, threads: 1, num_sanity_val_steps: 0, log_every_n_steps: 1}}
output: {{dir: {dir}/out, name: run, logger: [csv]}}
'''


def image(number): return png_of(32, bytes((number * 37 + i * (number % 5 + 3)) % 256 for i in range(3 * 32 * 32)))


class WebDataset(ProgramTest):
    def setUp(self):
        super().setUp()
        self.yaml = self.config(CONFIG.format(dir=self.dir, lr=0))

    def archive(self, name, numbers, format=tarfile.PAX_FORMAT):
        with tarfile.open(self.dir / name, 'w', format=format) as tar:
            for number in numbers:
                for extension, content in (('png', image(number)), ('cls', str(number % 3).encode())):
                    info = tarfile.TarInfo(f'images/{number:04}.{extension}')
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))

    def archives(self):
        """20 samples in three archives of unequal size, each of another format, and 6 for validation."""
        for i, (numbers, format) in enumerate(((range(9), tarfile.PAX_FORMAT), (range(9, 14), tarfile.GNU_FORMAT), (range(14, 20), tarfile.USTAR_FORMAT))):
            self.archive(f'train-{i:06}.tar', numbers, format)
        self.archive('val-000000.tar', range(20, 26))

    def last_epoch(self, name='run'): return json.loads((self.dir / 'out' / name / 'version_0/history.json').read_text())['epochs'][-1]

    def test_an_epoch_has_each_sample_once_on_one_rank_and_on_two(self):
        self.archives()
        # The weights do not change, so that the mean over an epoch is that of the same samples in the validation.
        same = ['data.val=["train-{000000..000002}.tar"]']
        for name, ranks in (('one', []), ('two', ['--nproc', 2])):
            with self.subTest(name):
                result = train_app(self.yaml, *same, *ranks, f'output.name={name}')
                self.assertDone(result)
                epoch = self.last_epoch(name)
                self.assertAlmostEqual(epoch['train']['loss'], epoch['val']['loss'], delta=1e-5)
                self.assertIn('a stream + 20 images, 3 classes, 3 archives for training', result[2])
                (self.assertIn if name == 'two' else self.assertNotIn)('3 archives for 2 ranks: 1 of the ranks read 2 in each epoch, the others 1', result[2])
        self.archive('train-000000.tar', range(40))
        self.archive('train-000001.tar', [0])
        unequal = train_app(self.yaml, '--nproc', 3, 'output.name=unequal')
        self.assertDone(unequal)
        self.assertRegex(unequal[2], r'unequal parts of the training data: in this epoch, rank \d had the fewest batches \(1\) and rank \d the most \(10\);')

    def test_a_run_resumes_inside_an_epoch(self):
        self.archives()
        train = (self.config(CONFIG.format(dir=self.dir, lr=0.1)), 'trainer.max_epochs=2')
        for ranks in (['--nproc', 2], [])[:2 if FULL else 1]:
            with self.subTest(ranks=ranks):
                whole, parts = (f'output.dir={self.dir}/{kind}{len(ranks)}' for kind in ('whole', 'parts'))
                self.assertDone(train_app(*train, *ranks, whole))
                self.assertDone(train_app(*train, *ranks, parts, 'trainer.max_steps=2'))
                if ranks: self.assertFails(train_app(*train, parts, '--resume', 'auto'), CHECKPOINT, 'resume with 2 ranks')
                self.assertDone(train_app(*train, *ranks, parts, '--resume', 'auto'))
                folders = [self.dir / f'{kind}{len(ranks)}' for kind in ('whole', 'parts')]
                self.assertEqual(*(contents(folder)['model.safetensors'] for folder in folders))

    def test_what_cannot_be_read(self):
        self.archives()
        found = json.loads(self.assertDone(npu_tool('data', 'check', self.yaml, '--json')))
        self.assertEqual(found['summary'], 'a stream + 6 images, 3 classes, 3 archives for training')
        self.assertEqual([(c['train'], c['val']) for c in found['classes']], [(7, 2), (7, 2), (6, 2)])
        path = self.dir / 'train-000001.tar'
        path.write_bytes(path.read_bytes().replace(b'IHDR', b'XXXX', 1))
        self.assertFails(train_app(self.yaml), DATA, f'{path}, sample images/0009')
        skipped = train_app(self.yaml, 'data.on_bad_sample=skip', 'output.name=skipped')
        self.assertDone(skipped)
        self.assertIn('1 samples could not be read and were omitted from epoch 0', skipped[2])
        broken = self.dir / 'train-000002.tar'
        broken.write_bytes(broken.read_bytes()[:5000])  # as a copy that was interrupted: an error in any case, since what is missing is not known
        self.assertFails(train_app(self.yaml, 'data.on_bad_sample=skip'), DATA, f'{broken}, offset', 'truncated')
        for command, expected in (('check', FAILED), ('stats', DATA)):
            code, out, _ = npu_tool('data', command, self.yaml, '--json')
            bad = json.loads(out)['bad']
            self.assertEqual((code, len(bad)), (expected, 2))
            self.assertEqual([b['place'] for b in bad if b['place']], [f'{path}, sample images/0009'])
            self.assertTrue([b for b in bad if f'{broken}, offset' in b['message']], bad)

    @unittest.skipUnless(PEER.has('webdataset'), f'{MODELS_PYTHON} has no webdataset (scripts/setup --dev installs it)')
    def test_the_samples_are_those_of_webdataset(self):
        files = []
        for number in range(26):
            (self.dir / f'{number}.png').write_bytes(image(number))
            files.append(['train' if number < 20 else 'val', f'{number:04}', str(self.dir / f'{number}.png'), number % 3])
        (self.dir / 'files.json').write_text(json.dumps(files))
        self.assertDone(PEER.run(SCRIPT, 'write', self.dir, self.dir / 'files.json'))
        (self.dir / 'read').mkdir()
        shards = 'train-{000000..000002}.tar'
        samples = json.loads(self.assertDone(PEER.run(SCRIPT, 'read', self.dir / 'read', self.dir / shards)).splitlines()[-1])
        self.assertEqual(len(samples), 20)
        # All samples as validation data, in order: key, class, and by its answer the pixels of each.
        for label in ('cls', 'json')[:2 if FULL else 1]:
            self.assertDone(train_app(self.yaml, f'data.val=["{shards}"]', f'data.label={label}', f'output.name={label}'))
            run = self.dir / 'out' / label / 'version_0'
            self.assertDone(npu_tool('eval', '--checkpoint', run, '--predictions', self.dir / 'p.csv'))
            rows = list(csv.DictReader((self.dir / 'p.csv').read_text().splitlines()))
            self.assertEqual([[row['file'].rsplit(', sample ')[-1], int(row['target'])] for row in rows], samples)
            self.assertDone(npu_tool('predict', '--checkpoint', run, '--to', self.dir / 'answers.csv', *sorted((self.dir / 'read').iterdir())))
            for row, answer in zip(rows, csv.DictReader((self.dir / 'answers.csv').read_text().splitlines()), strict=True):
                self.assertEqual(row['prediction'], answer['class_1'])
                self.assertAlmostEqual(float(row['probability']), float(answer['probability_1']), delta=1e-5)
            epoch = self.last_epoch(label)
            self.assertAlmostEqual(epoch['train']['loss'], epoch['val']['loss'], delta=1e-5)


if __name__ == '__main__': main()
