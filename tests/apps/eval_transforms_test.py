"""The pixels that validation and `npu_tool predict` give a network, against the evaluation transforms of torchvision and timm, on JPEG files that a
reduced decoding would change, and on PNG, WebP and BMP files of every kind. Skipped without the packages. The Python that has them is NPU_TRAIN_MODELS_PYTHON, .venv/models (scripts/setup --dev),
or this one."""
import json
import pathlib
import unittest

from peers import MODELS_PYTHON, Peer
from programs import ProgramTest, main, npu_tool, train_app

PEER = Peer(MODELS_PYTHON, torchvision='import any_torchvision, numpy, PIL.Image, safetensors.torch\nfrom torchvision import transforms', timm='from timm.data import create_transform')
SCRIPT = pathlib.Path(__file__).with_name('python_transforms.py')
SIDE = 56
LIMIT = 1e-3  # in levels of a pixel
ROUNDED_LIMIT = 2.001  # transformers resizes byte tensors with torchvision, whose two passes round differently from Pillow's

# A network whose logits are its input, so that predict --logits writes the pixels.
CONFIG = '''
seed: 1
device: cpu
precision: 32-true
model: {{name: torchscript, path: {dir}/pixels.pt, allow_code: true, num_classes: {classes}, allow_unused_classes: true}}
data:
  name: image_folder
  root: {dir}/data
  image_size: {side}
  batch_size: 2
  num_workers: 0
  jpeg: {jpeg}
  train_transforms: [{{name: center_crop}}, normalize]
  val_transforms: [{resize}, {{name: center_crop}}, normalize]
optimizer: {{name: sgd, lr: 0, momentum: 0}}
trainer: {{max_epochs: 1, threads: 1, num_sanity_val_steps: 0}}
output: {{dir: {dir}/out, name: {name}, logger: [csv]}}
'''


@unittest.skipUnless(PEER.has('timm', 'torchvision'), 'there is no Python with torchvision and timm')
class EvalTransforms(ProgramTest):
    def python(self, *args):
        code, out, error = PEER.run(SCRIPT, *args)
        self.assertEqual(code, 0, out + error)
        return json.loads(out.splitlines()[-1])

    def setUp(self):
        super().setUp()
        self.images = self.python('make', self.dir, str(SIDE))

    def largest_difference(self, name, transform):
        """The largest difference over all images, in levels."""
        return self.python('compare', self.dir, str(SIDE), transform, self.dir / f'{name}.npy')

    def trained(self, name, resize, jpeg='auto'):
        config = CONFIG.format(dir=self.dir, classes=3 * SIDE * SIDE, side=SIDE, resize=resize, jpeg=jpeg, name=name)
        self.assertDone(train_app(self.config(config, name=f'{name}.yaml')))
        run_dir = self.dir / 'out' / name / 'version_0'
        self.assertDone(npu_tool('predict', '--checkpoint', run_dir, 'model.allow_code=true', '--device', 'cpu', '--logits', self.dir / f'{name}.npy', *self.images))
        return json.loads((run_dir / 'history.json').read_text())['epochs'][-1]['val']['loss']

    def test_predictions_have_the_pixels_of_torchvision(self):
        model = ('--model', 'torchscript', f'model.path={self.dir}/pixels.pt', 'model.allow_code=true', '--num-classes', str(3 * SIDE * SIDE), f'model.image_size={SIDE}',
                 '--weights', self.dir / 'pixels.safetensors')
        self.assertDone(npu_tool('predict', *model, '--device', 'cpu', '--logits', self.dir / 'plain.npy', *self.images))
        self.assertLess(self.largest_difference('plain', 'torchvision'), LIMIT)

    def test_predictions_are_prepared_as_the_files_next_to_the_weights_say(self):
        for name in ('vit', 'clip', 'convnext', 'deit', 'pretrained_cfg'):
            with self.subTest(name):
                model = ('--model', 'torchscript', f'model.path={self.dir}/pixels.pt', 'model.allow_code=true', '--num-classes', str(3 * SIDE * SIDE),
                         f'model.image_size={SIDE}', '--weights', self.dir / name / 'pixels.safetensors')
                code, out, error = npu_tool('predict', *model, '--device', 'cpu', '--logits', self.dir / f'{name}.npy', *self.images)
                self.assertEqual(code, 0, error)
                self.assertIn('images are prepared as', error)
                self.assertLess(self.largest_difference(name, name), LIMIT if name == 'pretrained_cfg' else ROUNDED_LIMIT)
        (self.dir / 'vit/preprocessor_config.json').write_text('{"do_rescale": false}')
        refused = npu_tool('predict', *model[:-1], self.dir / 'vit/pixels.safetensors', '--device', 'cpu', *self.images)
        self.assertFails(refused, 6, 'the values of pixels are not divided by 255')

    def test_checkpoints_have_the_pixels_of_timm_and_validation_too(self):
        # timm resizes to floor(56 / 0.9) = 62.
        loss = self.trained('timm', '{name: resize, crop_ratio: 0.9, interpolation: bicubic}')
        self.assertLess(self.largest_difference('timm', 'timm'), LIMIT)
        self.assertAlmostEqual(loss, self.python('loss', self.dir, str(SIDE), 'timm'), delta=1e-4 * abs(loss))

    def test_fast_decoding_differs_as_documented(self):
        exact = self.trained('exact', '{name: resize, size: 64}')
        fast = self.trained('fast', '{name: resize, size: 64}', jpeg='fast')
        self.assertNotAlmostEqual(exact, fast, delta=1e-4 * abs(exact))  # only the validation changes; predictions stay exact
        for name in ('exact', 'fast'): self.assertLess(self.largest_difference(name, 'torchvision'), LIMIT)


if __name__ == '__main__': main()
