"""A folder of images as people have it: one folder a class, parts held out for validation, a test set, and answers in a file."""
import base64
import csv
import html
import json
import math
import pathlib
import random
import re
import shutil
import statistics
import unittest
import zlib

from images import FOLDER, png
from peers import MODELS_PYTHON, Peer
from programs import BIN, ProgramTest, main, npu_tool, train_app

SCORES = pathlib.Path(__file__).with_name('python_scores.py')
STATISTICS = pathlib.Path(__file__).with_name('python_statistics.py')
PEER = Peer(MODELS_PYTHON, pillow='import numpy\nfrom PIL import Image', sklearn='import numpy\nfrom sklearn import metrics')

COLOURS = {'blue': (30, 30, 220), 'green': (30, 220, 30), 'red': (220, 30, 30)}


def chunks_of(png):
    """Offset and size of each IDAT chunk."""
    at = 8
    while at < len(png):
        size = int.from_bytes(png[at:at + 4], 'big')
        if png[at + 4:at + 8] == b'IDAT': yield at, size
        at += 12 + size


class ImageData(ProgramTest):
    def setUp(self):
        super().setUp()
        self.yaml = self.config(FOLDER.format(dir=self.dir, root='images', epochs=4))

    def images(self, root, count, shift=0):
        """`count` images of each class in ROOT/<class>/. With `shift` they have the colours of the next class."""
        names = list(COLOURS)
        for k, name in enumerate(names):
            folder = self.dir / 'images' / root / name
            folder.mkdir(parents=True)
            for i in range(count): png(folder / f'{i}.png', 32, tuple(max(0, c - 3 * i) for c in COLOURS[names[(k + shift) % 3]]))

    def eval(self, *args): return json.loads(self.assertDone(npu_tool('eval', '--checkpoint', self.dir / 'out/run/version_0', *args, '--json')))

    def test_what_each_sample_was_taken_for(self):
        self.images('train', 10)
        self.images('val', 6)
        shutil.copy(self.dir / 'images/val/blue/0.png', self.dir / 'images/val/red/wrong.png')
        self.assertDone(train_app(self.yaml))
        document = self.eval('--predictions', self.dir / 'p.csv', '--html', self.dir / 'p.html')
        rows = list(csv.DictReader((self.dir / 'p.csv').read_text().splitlines()))
        self.assertEqual([int(r['sample']) for r in rows], list(range(19)))
        for r in rows:
            self.assertTrue(pathlib.Path(r['file']).is_file(), r)
            self.assertEqual(pathlib.Path(r['file']).parent.name, r['target'])
        self.assertDone(npu_tool('predict', '--checkpoint', self.dir / 'out/run/version_0', '--to', self.dir / 'answers.csv', *(r['file'] for r in rows)))
        for row, answer in zip(rows, csv.DictReader((self.dir / 'answers.csv').read_text().splitlines()), strict=True):
            self.assertEqual((row['file'], row['prediction']), (answer['image'], answer['class_1']))
            self.assertAlmostEqual(float(row['probability']), float(answer['probability_1']), delta=1e-5)
        self.assertAlmostEqual(document['loss'], -statistics.fmean(math.log(float(r['probability_of_target'])) for r in rows), delta=1e-4)
        self.assertAlmostEqual(document['acc1'], 100 * 18 / 19, delta=1e-9)
        self.assertNotIn('acc5', document)
        self.assertNotIn('sample_outcomes', document)
        self.assertEqual(document['confusions'], [{'target': 'red', 'prediction': 'blue', 'samples': 1}])
        self.assertTrue(document['worst'][0]['file'].endswith('red/wrong.png'))
        blue, _, red = document['classes']
        self.assertEqual((red['samples'], red['predicted'], red['right'], red['precision'], red['recall']), (7, 6, 6, 1, 6 / 7))
        self.assertEqual((blue['samples'], blue['predicted'], blue['precision'], blue['f1']), (6, 7, 6 / 7, 12 / 13))
        self.assertIn('Confusion matrix', (self.dir / 'p.html').read_text())
        plain = self.eval()
        self.assertEqual({k: document[k] for k in plain}, plain)
        checkpoint = ('--checkpoint', self.dir / 'out/run/version_0')
        self.assertFails(npu_tool('eval', *checkpoint, '--predictions', self.dir / 'p.txt'), 2, 'ends in .csv')
        self.assertFails(npu_tool('eval', *checkpoint, '--html', self.dir / 'q.html', 'task={name: regressor}'), 2, 'need the task classifier')

    def test_folders_of_classes_are_divided_by_a_seed(self):
        self.images('.', 10)
        result = train_app(self.yaml, 'data.fold=2/5', 'data.split_seed=3')
        self.assertDone(result)
        self.assertIn('24 + 6 images, 3 classes', result[2])
        self.assertEqual(self.eval()['acc1'], 100)
        held = {fold: self.held_out(f'data.fold={fold}/5') for fold in (1, 2)}
        self.assertEqual([len(held[1]), len(held[2]), len(held[1] & held[2])], [6, 6, 0])
        self.assertEqual(len(self.held_out('data.val_split=0.1')), 3)
        self.assertFails(train_app(self.yaml, 'data.fold=7/5'), 2, "[data.fold] is '7/5'; allowed: I/N")

    def stats(self, *args): return json.loads(self.assertDone(npu_tool('data', 'stats', *args, '--json')))

    @unittest.skipUnless(PEER.has('pillow'), f'{MODELS_PYTHON} has no Pillow (scripts/setup --dev installs it)')
    def test_statistics_are_those_of_pillow_and_numpy(self):
        expected = json.loads(self.assertDone(PEER.run(STATISTICS, self.dir / 'images')))
        found = self.stats(self.dir / 'images', '--html', self.dir / 's.html')
        self.assertEqual({m['mode']: m['images'] for m in found['modes']}, expected['modes'])
        self.assertEqual({f"{s['height']}x{s['width']}": s['images'] for s in found['sizes']}, expected['sizes'])
        self.assertEqual(found['sizes'][0], {'height': 20, 'width': 31, 'images': 2})  # the most frequent one
        self.assertEqual([c['pixels'] for c in found['channels']], [expected['pixels']] * 3)
        for key in ('mean', 'std'):
            for own, wanted in zip(found['normalize'][key], expected[key], strict=True): self.assertAlmostEqual(own, wanted, delta=1e-9, msg=key)
        self.assertEqual([(c['class'], c['train']) for c in found['classes']], [('cat', 6), ('eel', 4), ('dog', 3)])
        self.assertEqual((found['imbalance'], found['pixels_of']), (2, 'files'))
        self.assertIn('Training samples by class', (self.dir / 's.html').read_text())
        text = ' '.join(self.assertDone(npu_tool('data', 'stats', self.dir / 'images')).split())
        numbers = ', '.join(f'{m:.6g}' for m in found['normalize']['mean'])
        self.assertIn(f'{{name: normalize, mean: [{numbers}], std: [', text)

    def test_statistics_of_a_configuration_are_of_the_pixels_that_the_model_gets(self):
        self.images('train', 5)
        self.images('val', 2)
        yaml = (self.yaml, 'data.val_transforms=[{name: resize, size: 40}, {name: center_crop, size: 24}, normalize]')
        found = self.stats(*yaml)
        shades = [[max(0, colour[c] - 3 * i) for colour in COLOURS.values() for i in range(5)] for c in range(3)]
        for channel, values in zip(found['channels'], shades, strict=True):  # each image has one colour
            self.assertEqual((channel['pixels'], channel['sum'], channel['sum_of_squares']),
                             (15 * 24 * 24, 24 * 24 * sum(values), 24 * 24 * sum(v * v for v in values)))
            self.assertAlmostEqual(channel['mean'], statistics.fmean(values) / 255, delta=1e-12)
            self.assertAlmostEqual(channel['std'], statistics.pstdev(values) / 255, delta=1e-12)
        self.assertEqual((found['train'], found['val'], found['imbalance'], found['pixels_of']), (15, 6, 1, 'data.val_transforms'))
        self.assertEqual(found['sizes'], [{'height': 32, 'width': 32, 'images': 21}])
        (self.dir / 'images/train/red/0.png').write_bytes(b'no image')
        result = npu_tool('data', 'stats', *yaml)
        self.assertFails(result, 3, '1 of 21 samples cannot be read', 'red/0.png')
        self.assertIn('the largest class, blue, has 1.25 times as many training samples as the smallest, red', ' '.join(result[1].split()))
        self.assertFails(npu_tool('data', 'stats'), 2, 'no configuration is given')

    def test_lengths_of_texts(self):
        texts = self.dir / 'texts.jsonl'
        texts.write_text(''.join(json.dumps({'text': 'x' * n, 'label': n % 2}) + '\n' for n in (1, 2, 3, 4, 95)))
        yaml = self.config(f'model: {{name: bert_tiny}}\ndata: {{name: documents, train: {texts}, context: 128, batch_size: 1, num_workers: 0}}\n', name='t.yaml')
        found = self.stats(yaml)
        self.assertEqual(found['lengths'], {'texts': 5, 'tokens': 110, 'min': 2, 'mean': 22, 'median': 4, 'p95': 96, 'p99': 96, 'max': 96, 'context': 128})
        self.assertNotIn('channels', found)
        self.assertFails(npu_tool('data', 'show', yaml, '--html', self.dir / 't.html'), 2, 'data stats')

    def test_the_page_of_augmented_images(self):
        self.images('train', 4)
        page = self.dir / 'show.html'
        mixed = (self.yaml, 'data.mixup_alpha=0.4', 'data.train_transforms=[{name: random_crop, size: 32, padding: 4}, normalize]')
        found = json.loads(self.assertDone(npu_tool('data', 'show', *mixed, '--html', page, '--images', 5, '--versions', 3, '--json')))
        self.assertEqual((len(found['images']), found['html'], found['seed']), (5, str(page), 1))
        for image in found['images']:
            self.assertEqual(image['class'], pathlib.Path(image['file']).parent.name)
            for version in image['versions']:
                self.assertAlmostEqual(sum(version['labels'].values()), 1, places=6)
                self.assertIn(image['class'], version['labels'])
        text = page.read_text()
        self.assertEqual(len(re.findall('<img src="data:image/png;base64,', text)), 15)
        self.assertGreater(len(set(re.findall('base64,([^"]*)"', text))), 12)
        other = json.loads(self.assertDone(npu_tool('data', 'show', *mixed, 'seed=2', '--html', page, '--images', 5, '--json')))
        self.assertNotEqual([i['versions'][0]['labels'] for i in found['images']], [i['versions'][0]['labels'] for i in other['images']])
        self.images('val', 2)
        text = self.assertDone(npu_tool('data', 'show', self.yaml, '--split', 'val', '--html', page))
        self.assertIn('6 images, as they are in the first epoch of a validation', ' '.join(text.split()))
        self.assertEqual(self.colours_of(page), sorted(tuple(max(0, c - 3 * i) for c in colour) for colour in COLOURS.values() for i in range(2)))
        (self.dir / 'images/train/red/0.png').write_bytes(b'no image')
        result = npu_tool('data', 'show', self.yaml, '--html', page, '--versions', 2)
        self.assertFails(result, 3, '1 of 12 images cannot be shown', 'red/0.png', f'{page} has the reasons')
        self.assertIn('2 of 24 pictures are missing', ' '.join(result[1].split()))
        self.assertEqual(page.read_text().count('<img src="data:image/png;base64,'), 22)
        self.assertFails(npu_tool('data', 'show', self.yaml), 2, '--html')
        self.assertFails(npu_tool('data', 'show', self.yaml, '--html', page, '--images', 5000), 2, 'at most 2000')

    def colours_of(self, page):
        """The first pixel of each image of a page, from its compressed rows."""
        out = []
        for file in re.findall('data:image/png;base64,([^"]*)"', page.read_text()):
            data = base64.b64decode(file)
            rows = zlib.decompress(b''.join(data[at + 8:at + 8 + size] for at, size in chunks_of(data)))
            out.append(tuple(rows[1:4]))  # after the filter of the row, which changes no first pixel
        return sorted(out)

    def test_tools_that_read_no_images_know_the_classes_of_a_folder(self):
        self.images('.', 6)
        self.assertIn('[1, 3]', self.assertDone(npu_tool('summary', self.yaml)))
        self.assertDone(npu_tool('memory', self.yaml, 'data.val_split=0.2', 'task.balanced_classes=true', 'data.sampler=balanced'))
        self.assertDone(npu_tool('verify-determinism', self.yaml, 'data.val_split=0.2', 'lr_scheduler={name: plateau}', '--steps', 2))

    def test_averages_of_a_run_that_thawed_are_evaluated(self):
        self.images('.', 6)
        self.assertDone(train_app(self.yaml, 'data.val_split=0.2', 'average.enabled=true', 'trainer.max_epochs=2', 'model.freeze=[encoder.*]',
                                  'model.unfreeze=[{match: "*", epoch: 1}]'))
        self.assertEqual(self.eval()['weights'], 'ema')

    def held_out(self, *args):
        """The validation images: those that data check cannot read when all files are cut."""
        files = list((self.dir / 'images').rglob('*.png'))
        contents = {file: file.read_bytes() for file in files}
        for file in files: file.write_bytes(contents[file][:40])
        report = json.loads(npu_tool('data', 'check', self.yaml, *args, '--json')[1])
        for file in files: file.write_bytes(contents[file])
        self.assertEqual(len(report['bad']), len(files))
        return {sample['place'] for sample in report['bad'] if sample['split'] == 'val'}

    def test_files_with_equal_pixels_are_found(self):
        self.images('train', 6)
        self.images('val', 2)
        shutil.copy(self.dir / 'images/train/red/3.png', self.dir / 'images/val/blue/9.png')
        report = json.loads(self.assertDone(npu_tool('data', 'check', self.yaml, '--json')))
        copies = [{sample['place'] for sample in group['samples']} for group in report['repeated']]
        self.assertIn({str(self.dir / 'images/train/red/3.png'), str(self.dir / 'images/val/blue/9.png')}, copies)
        self.assertIn('in both train and val', self.assertDone(npu_tool('data', 'check', self.yaml)))

    def test_a_test_set_is_evaluated_by_name(self):
        self.images('train', 6)
        self.images('val', 2)
        self.images('test', 4, shift=1)  # each image belongs to another class than its folder says
        self.assertDone(train_app(self.yaml))
        for split, correct in (('val', 1), ('test', 0), ('train', 1)):
            answer = self.eval('--split', split)
            self.assertEqual((answer['split'], answer['acc1']), (split, 100 * correct))
        text = self.assertDone(npu_tool('eval', '--checkpoint', self.dir / 'out/run/version_0', '--split', 'test'))
        self.assertIn('test/acc1 0.0000', text)
        (self.dir / 'images/test').rename(self.dir / 'images/other')
        self.assertFails(npu_tool('eval', '--checkpoint', self.dir / 'out/run/version_0', '--split', 'test'), 2,
                         'image_folder has no test data', 'those of an image_folder are in ROOT/test/<class>/')

    def test_classes_of_different_sizes_are_balanced(self):
        self.images('train', 8)
        for file in (self.dir / 'images/train/red').glob('[2-7].png'): file.unlink()
        self.assertDone(train_app(self.yaml, 'task.balanced_classes=true', 'trainer.max_epochs=1'))
        resolved = (self.dir / 'out/run/version_0/config.yaml').read_text()
        weights = [float(number) for number in re.search(r'class_weights: \[(.*)\]', resolved).group(1).split(',')]
        for weight, expected in zip(weights, [18 / 24, 18 / 24, 18 / 6]): self.assertAlmostEqual(weight, expected)
        self.assertIn('balanced_classes: false', resolved)
        self.assertFails(train_app(self.yaml, 'task.balanced_classes=true', 'task.class_weights=[1, 2, 3]'), 2, 'allowed: one of them')
        self.assertFails(train_app(self.yaml, 'task.class_weights=[1, 2]'), 2, 'class_weights has 2 numbers, and the model 3 classes')

    def test_a_run_trains_on_a_subset_of_the_images(self):
        self.images('train', 8)
        chosen = self.dir / 'chosen.txt'
        chosen.write_text('\n'.join(str(index) for index in [*range(8), *range(8, 12), *range(16, 24)]) + '\n')  # 4 of the second class
        subset = 'data.sampler=subset', f'data.sampler_file={chosen}'
        self.assertDone(train_app(self.yaml, *subset, 'task.balanced_classes=true', 'trainer.max_epochs=1'))
        resolved = (self.dir / 'out/run/version_0/config.yaml').read_text()
        weights = [float(number) for number in re.search(r'class_weights: \[(.*)\]', resolved).group(1).split(',')]
        for weight, expected in zip(weights, [20 / 24, 20 / 12, 20 / 24]): self.assertAlmostEqual(weight, expected)
        report = json.loads(self.assertDone(npu_tool('data', 'show', self.yaml, *subset, '--html', self.dir / 'p.html', '--images', 24, '--json')))
        self.assertNotIn('not drawn', json.dumps(report))
        self.assertDone(npu_tool('memory', self.yaml, *subset))
        self.assertEqual(self.eval('--split', 'train')['split'], 'train')
        chosen.unlink()
        self.assertFails(npu_tool('data', 'check', self.yaml, *subset), 3, 'chosen.txt')
        self.eval('--split', 'train')  # evaluates all samples
        chosen.write_text('24\n')
        for balanced in ('true', 'false'):
            self.assertFails(train_app(self.yaml, *subset, f'task.balanced_classes={balanced}'), 3, f'{chosen}: the subset has the index 24; allowed: 0 to 23')
        chosen.write_text('\n'.join(map(str, range(20))))
        self.assertFails(train_app(self.yaml, *subset, 'data.batch_size=21'), 2, 'the subset of the data set', 'has 20 samples')

    def test_answers_are_written_to_a_file_a_row_for_each_image(self):
        self.images('train', 6)
        self.assertDone(train_app(self.yaml))
        run, folder = self.dir / 'out/run/version_0', self.dir / 'images/train'
        (folder / 'red/0.png').write_bytes(b'no image')
        paths = sorted(str(path) for path in folder.rglob('*.png'))
        listed = self.dir / 'list.txt'
        listed.write_text('\n'.join(paths) + '\n\n', encoding='utf-8-sig')
        printed = json.loads(self.unreadable(run, folder, '--json'))['predictions']
        for source in ([folder], ['--list', listed]):
            for kind in ('csv', 'jsonl'):
                file = self.dir / f'answers.{kind}'
                self.assertIn(f'{file}: 18 images', self.unreadable(run, *source, '--to', file))
                with file.open(newline='') as opened:
                    rows = list(csv.DictReader(opened)) if kind == 'csv' else [json.loads(line) for line in opened]
                self.assertEqual([row['image'] for row in rows], paths)
                for row, answer in zip(rows, printed):
                    if kind == 'jsonl':
                        self.assertEqual(row, answer)
                    elif 'error' in answer:
                        self.assertEqual((row['class_1'], row['probability_3'], row['error']), ('', '', answer['error']))
                    else:
                        self.assertEqual([row[f'class_{i}'] for i in (1, 2, 3)], [top['name'] for top in answer['top']])
                        self.assertAlmostEqual(float(row['probability_1']), answer['top'][0]['probability'], places=5)
                        self.assertEqual((row['class_1'], row['error']), (row['image'].split('/')[-2], ''))
        self.check_page_of_answers(run, folder, printed)
        self.assertFails(npu_tool('predict', '--checkpoint', run, folder, '--to', self.dir / 'answers.txt'), 2, '.csv or .jsonl')
        image = next(folder.glob('*/*.png'))
        before = image.read_bytes()
        for option, ending in ('--html', '.html'), ('--logits', '.npy'):
            self.assertFails(npu_tool('predict', '--checkpoint', run, option, image, folder), 2, f'{image}; allowed: a name that ends in {ending}')
        self.assertEqual(image.read_bytes(), before)
        self.assertFails(npu_tool('predict', '--checkpoint', run), 2, 'no images are given')
        self.assertFails(npu_tool('predict', '--checkpoint', run, '--list', self.dir / 'none'), 3, 'cannot be read or names no image')

    def check_page_of_answers(self, run, folder, printed):
        page = self.dir / 'answers.html'
        self.assertEqual(json.loads(self.unreadable(run, folder, '--html', page, '--json'))['predictions'], printed)
        text = page.read_text()
        self.assertIn(f'18 images in {folder}, of which 1 cannot be read.', html.unescape(text))
        self.assertIn('<p>Checkpoint ', text.split('<section class="gallery">')[0])  # before the pictures
        items = re.findall(r'<div class="item" data-g="([^"]*)"><h4[^>]*>([^<]*)</h4><figure>(<img src="data:image/jpeg;base64,([^"]*)" width="160" height="160")?(.*?)</figure>', text)
        self.assertEqual(len(items), 18)
        for (group, title, _, file, caption), answer in zip(items, printed):
            self.assertEqual(title, answer['image'].removeprefix(f'{folder}/'))
            if 'error' in answer:
                self.assertEqual((group, file), ('(cannot be read)', ''))
                continue
            self.assertEqual(group, answer['top'][0]['name'])
            self.assertEqual(base64.b64decode(file)[:3], b'\xff\xd8\xff')
            self.assertEqual(re.findall(r'<span>([^<]*)</span><b>([^<]*)</b>', caption), [(t['name'], f"{100 * t['probability']:.1f} %") for t in answer['top']])
        for name in COLOURS: self.assertRegex(text, rf'<option value="{name}">{name} \([56]\)</option>')

    def unreadable(self, run, *args):
        """What predict prints of images one of which cannot be read."""
        result = npu_tool('predict', '--checkpoint', run, *args)
        self.assertFails(result, 3, '1 of 18 images cannot be read', 'red/0.png')
        return result[1]

    def listed(self, header, targets):
        """A configuration whose images a list names; `targets(red, green, blue)` gives the rest of a line. Returns the files of val.csv, and their targets."""
        random.seed(3)
        (self.dir / 'images').mkdir()
        out = []
        for root, count in (('train', 48), ('val', 17)):
            lines = [f'image,{header}']
            for i in range(count):
                colour = tuple(random.choice((20, 230)) + random.randrange(-20, 20) for _ in range(3))
                png(self.dir / f'images/{root}_{i:02}.png', 32, colour)
                text, target = targets(*colour)
                lines.append(f'{root}_{i:02}.png,{text}')
                if root == 'val': out.append((self.dir / f'images/val_{i:02}.png', target))
            (self.dir / f'images/{root}.csv').write_text('\n'.join(lines) + '\n')
        yaml = FOLDER.format(dir=self.dir, root='images', epochs=4).replace('name: image_folder', 'name: image_list\n  train: train.csv\n  val: val.csv')
        return (self.config(yaml), 'trainer.max_epochs=12'), *zip(*out)

    def scores_by_scikit_learn(self, files, targets, kind):
        self.assertDone(npu_tool('predict', '--checkpoint', self.dir / 'out/run/version_0', *files, '--logits', self.dir / 'logits.npy', '--json'))
        (self.dir / 'targets.json').write_text(json.dumps(targets))
        return json.loads(self.assertDone(PEER.run(SCORES, self.dir / 'logits.npy', self.dir / 'targets.json', kind)))

    @unittest.skipUnless(PEER.has('sklearn'), f'{MODELS_PYTHON} has no scikit-learn (scripts/setup --dev installs it)')
    def test_several_classes_from_a_list(self):
        names = ('blue', 'green', 'red')  # alphabetical, like the classes

        def tags(red, green, blue):
            bright = [c > 128 for c in (blue, green, red)]
            return ';'.join(name for name, is_bright in zip(names, bright) if is_bright), [int(b) for b in bright]

        run, files, targets = self.listed('tags', tags)
        run = (*run, 'data.labels=tags', 'task={name: multilabel_classifier, metrics: [multilabel_accuracy, map, f1]}')
        said = train_app(*run)
        self.assertDone(said)
        self.assertIn('48 + 17 images, 3 classes', said[2])
        own, expected = self.eval(), self.scores_by_scikit_learn(files, targets, 'several')
        for name, value in expected.items(): self.assertAlmostEqual(own[name], value, delta=1e-5 * max(1, abs(value)), msg=name)
        self.assertGreater(own['acc'], 80)
        self.assertDone(npu_tool('predict', '--checkpoint', self.dir / 'out/run/version_0', *files, '--to', self.dir / 'a.jsonl', '--top', 3))
        for line, target in zip((self.dir / 'a.jsonl').read_text().splitlines(), targets, strict=True):
            top = json.loads(line)['top']
            self.assertEqual(sorted(t['name'] for t in top), list(names))
            if own['acc'] == 100: self.assertEqual([int(t['probability'] > 0.5) for t in sorted(top, key=lambda t: t['class'])], target)
        self.assertNotAlmostEqual(sum(t['probability'] for t in top), 1, delta=1e-3)  # each class has a probability of its own
        check = json.loads(self.assertDone(npu_tool('data', 'check', *run, '--json')))
        self.assertEqual([c['val'] for c in check['classes']], [sum(t[k] for t in targets) for k in range(3)])
        self.assertFails(train_app(*run, 'task={name: classifier}'), 2, 'classifier needs one class', 'multilabel_classifier')
        self.assertFails(npu_tool('eval', '--checkpoint', self.dir / 'out/run/version_0', '--html', self.dir / 'p.html'), 2, 'need the task classifier')

    @unittest.skipUnless(PEER.has('sklearn'), f'{MODELS_PYTHON} has no scikit-learn (scripts/setup --dev installs it)')
    def test_numbers_from_a_list(self):
        def numbers(red, green, blue):
            values = [red / 255, (green - blue) / 255]
            return ','.join(f'{v:.6f}' for v in values), [float(f'{v:.6f}') for v in values]

        run, files, targets = self.listed('warmth,balance', numbers)
        self.assertDone(train_app(*run, 'data.values=[warmth, balance]', 'task={name: regressor, metrics: [mse, mae, r2]}'))
        own, expected = self.eval(), self.scores_by_scikit_learn(files, targets, 'numbers')
        for name, value in expected.items(): self.assertAlmostEqual(own[name], value, delta=1e-5, msg=name)
        self.assertGreater(own['r2'], 0.5)
        checkpoint = ('--checkpoint', self.dir / 'out/run/version_0')
        answers = json.loads(self.assertDone(npu_tool('predict', *checkpoint, *files, '--json')))['predictions']
        error = [abs(a['values']['warmth'] - t[0]) + abs(a['values']['balance'] - t[1]) for a, t in zip(answers, targets, strict=True)]
        self.assertAlmostEqual(statistics.fmean(error) / 2, own['mae'], delta=1e-5)
        self.assertDone(npu_tool('predict', *checkpoint, *files, '--to', self.dir / 'a.csv'))
        rows = list(csv.DictReader((self.dir / 'a.csv').read_text().splitlines()))
        self.assertEqual(list(rows[0]), ['image', 'warmth', 'balance', 'error'])
        self.assertAlmostEqual(float(rows[3]['warmth']), answers[3]['values']['warmth'], delta=1e-6)
        self.assertRegex(self.assertDone(npu_tool('predict', *checkpoint, files[0])), r'  warmth -?\d')
        swapped = self.eval('data.values=[balance, warmth]')
        for name in ('mse', 'r2'): self.assertAlmostEqual(swapped[name], own[name], delta=1e-6)
        self.assertFails(npu_tool('eval', *checkpoint, 'data.values=[warmth]'), 3, 'the data have the numbers warmth, and the model gives warmth, balance')
        self.assertDone(npu_tool('bench', *run, 'data.values=[warmth, balance]', 'task={name: regressor}', '--what', 'step', '--steps', 2))
        self.assertFails(train_app(*run, 'data.values=[warmth, balance]', 'task={name: multilabel_classifier}'), 3, 'for class 1 is -', 'allowed: 0 to 1')
        (self.dir / 'images/train.csv').write_text('image,warmth\ntrain_00.png,much\n')
        self.assertFails(train_app(*run, 'data.values=[warmth]', 'task={name: regressor}'), 3, "train.csv:2: column 'warmth': 'much' is not a number")

    @unittest.skipUnless(PEER.has('sklearn'), f'{MODELS_PYTHON} has no scikit-learn (scripts/setup --dev installs it)')
    def test_scores_of_a_validation_are_those_of_scikit_learn_on_any_number_of_ranks(self):
        random.seed(5)
        for root, count in (('train', 8), ('val', 11)):
            for name, colour in COLOURS.items():
                folder = self.dir / 'images' / root / name
                folder.mkdir(parents=True)
                for i in range(count if name != 'red' else count - 4): png(folder / f'{i:02}.png', 32, tuple(c // 3 + random.randrange(170) for c in colour))
        scores = [f'{{name: {score}{average}}}' for score in ('precision', 'recall', 'f1') for average in ('', ', average: micro', ', average: weighted')]
        metrics = f"task.metrics=[accuracy, {', '.join(scores)}, {{name: recall, label: 1}}, auroc, map, ece]"
        options = (self.yaml, metrics, 'trainer.max_epochs=2', 'trainer.log_every_n_steps=1', 'checkpoint.monitor=val/f1')
        self.assertDone(train_app(*options))
        run = self.dir / 'out/run/version_0'
        own = self.eval()
        files = sorted((self.dir / 'images/val').rglob('*.png'))
        self.assertDone(npu_tool('predict', '--checkpoint', run, *files, '--logits', self.dir / 'logits.npy'))
        (self.dir / 'labels.json').write_text(json.dumps([sorted(COLOURS).index(file.parent.name) for file in files]))
        expected = json.loads(self.assertDone(PEER.run(SCORES, self.dir / 'logits.npy', self.dir / 'labels.json')))
        self.assertLess(0.4, expected['f1'])
        self.assertLess(expected['f1'], 0.95)
        for name, value in expected.items(): self.assertAlmostEqual(own[name], value, delta=1e-6, msg=name)

        with (run / 'metrics.csv').open(newline='') as opened: logged = list(csv.DictReader(opened))
        self.assertEqual({row['phase'] for row in logged if row['f1']}, {'val'})
        self.assertTrue(any(row['acc1'] and not row['f1'] for row in logged))
        self.assertDone(npu_tool('launch', '--nproc', 2, BIN / 'train_app', *options, 'data.batch_size=3', 'trainer.strategy=ddp', 'output.name=ranks'))
        of_ranks = json.loads((self.dir / 'out/ranks/version_0/history.json').read_text())['epochs'][-1]
        of_one = json.loads((run / 'history.json').read_text())['epochs'][-1]
        for name in expected: self.assertAlmostEqual(of_ranks['val'][name], of_one['val'][name], delta=1e-6, msg=name)
        self.assertFails(train_app(*options, 'early_stopping.monitor=train/f1'), 2, "no metric 'train/f1'", 'under val/ alone: precision')


if __name__ == '__main__': main()
