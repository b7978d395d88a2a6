"""Tools that need only shapes open no image and no file of weights; their hints about missing data work as printed."""
import json
import re

from programs import BIN, ProgramTest, SOURCE, main, npu_tool, train_app

MODEL = 'model: {name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8, weights: nowhere.safetensors}'
FOLDER = f'''
seed: 1
device: cpu
precision: 32-true
{MODEL}
data: {{name: image_folder, root: nowhere, image_size: 32, batch_size: 2, num_workers: 0, mixup_alpha: 0.2}}
optimizer: {{name: adamw, lr: 0.001}}
trainer: {{max_epochs: 1}}
'''


class NoImages(ProgramTest):
    def data(self, *args, config=FOLDER, code=0):
        result = npu_tool(*args[:1], self.config(config), *args[1:], '--json', cwd=self.dir)
        self.assertEqual(result[0], code, result[1] + result[2])
        return json.loads(result[1])

    def test_tools_that_need_shapes_alone(self):
        for data in (FOLDER, FOLDER.replace('image_folder', 'cifar10'), FOLDER.replace('image_folder', 'cifar100')):
            self.assertTrue(self.data('analyze', config=data)['operators'])
        self.assertGreater(self.data('memory', '--quick')['allocated'], 0)
        self.assertTrue(self.data('analyze', '--try', 'cpu')['passed'])
        self.assertGreater(self.data('summary')['parameters'], 0)
        self.assertEqual(list(self.dir.iterdir()), [self.dir / 'c.yaml'])  # no file was written

    def test_bench_opens_the_data_only_for_sections_that_read_it(self):
        found = self.data('bench', '--what', 'step,infer', '--batch', '2', '--steps', '1', '--warmup', '1', '--infer-steps', '1', '--no-machine')
        self.assertNotIn('could not be opened', json.dumps(found))
        self.assertIn('3x32x32, 10 classes', json.dumps(found))
        result = npu_tool('bench', self.config(FOLDER), '--what', 'loader', cwd=self.dir)
        self.assertFails(result, 3, 'nowhere')

    def test_folders_say_the_classes_and_their_files_are_not_read(self):
        for name in ('cat', 'dog', 'eel'):
            (self.dir / 'nowhere' / 'train' / name).mkdir(parents=True)
            (self.dir / 'nowhere' / 'train' / name / 'a.jpg').write_bytes(b'not an image')
        found = self.data('bench', '--what', 'step', '--batch', '2', '--steps', '1', '--warmup', '1', '--no-machine')
        self.assertIn('3x32x32, 3 classes', json.dumps(found))
        self.data('analyze')
        self.data('memory', '--quick')

    def test_the_configurations_of_this_project(self):
        for name in ('vit_b16_imagefolder', 'resnet50_cifar10_224'):
            small = ['model.depth=1'] if name.startswith('vit') else ['model.name=resnet18']
            result = npu_tool('analyze', SOURCE / f'configs/{name}.yaml', 'data.batch_size=2', *small, cwd=self.dir)
            self.assertDone(result)

    def test_checklist_goes_through_all_items(self):
        found = self.data('checklist', '--device', 'cpu', '--steps', '1', config=FOLDER.replace(', weights: nowhere.safetensors', ''), code=7)
        items = {i['item']: i for i in found['items']}
        for item in ('the chip has every operator', 'the model trains on the device', 'a run repeats bit for bit', 'a run resumes bit for bit'):
            self.assertEqual(items[item]['state'], 'done', items[item])
        self.assertIn('on random images', items['a run repeats bit for bit']['evidence'])
        self.assertEqual(items['data loading keeps up with the device']['state'], 'not done')
        self.assertIn('nowhere', items['data loading keeps up with the device']['evidence'])

    def test_the_hint_of_missing_data_works_as_it_stands(self):
        config = self.config(FOLDER.replace(', weights: nowhere.safetensors', ''))
        for data in ([], ['data={name: cifar10}']):
            result = train_app(config, *data, f'output.dir={self.dir}/out', cwd=self.dir)
            self.assertEqual(result[0], 3, result[1])
            hint = re.search(r"'(data=[^']*)'", result[2]).group(1)
            self.assertDone(train_app(config, *data, hint, '--fast-dev-run', cwd=self.dir))


if __name__ == '__main__': main()
