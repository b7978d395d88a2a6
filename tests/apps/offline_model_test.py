"""npu_tool predict --om: an offline model from export to prediction. ATC and AscendCL are stand-ins: the "offline model" computes means of
channels, so that its logits show what arrived at the network. tests/fake_ascendcl describes it."""
import array
import json
import os
import unittest

from images import png, png_of
from programs import BIN, ProgramTest, main, npu_tool, run_dir, train_app

FAKE = BIN.parent / 'tests' / 'fake_ascendcl'
EMPTY = BIN.parent / 'tests' / 'unfit_libraries' / 'empty.so'
NOTHING_LEFT = 'left: 0 models, 0 descriptions, 0 data sets, 0 buffers, 0 blocks, 0 contexts, 0 devices'
SIZE = 32

# Stands for ATC: writes the description of an offline model from the arguments.
ATC = '''#!/usr/bin/env python3
import re, sys
given = dict(word.split('=', 1) for word in sys.argv[1:])
name, sizes = given['--input_shape'].split(':')
batches = given.get('--dynamic_batch_size', '')
text = f"input {name} 0 {sizes.replace(',', ' ')}\\noutput output 0 {sizes.split(',')[0]} 10\\n"
if batches: text += f"batches {batches.replace(',', ' ')}\\n"
if '--insert_op_conf' in given:
    aipp = open(given['--insert_op_conf']).read()
    numbers = [re.search(f'{key}_{c} : (\\\\S+)', aipp).group(1) for key in ('min_chn', 'var_reci_chn') for c in range(3)]
    text += f"aipp {' '.join(numbers)}\\n"
open(given['--output'] + '.om', 'w').write(text)
'''


def expected(colour, mean, std, classes=10):
    """Logits of an image of one colour."""
    return [(colour[k % 3] / 255 - mean[k % 3]) / std[k % 3] + k for k in range(classes)]


class OfflineModels(ProgramTest):
    def setUp(self):
        super().setUp()
        atc = self.dir / 'bin' / 'atc'
        atc.parent.mkdir()
        atc.write_text(ATC)
        atc.chmod(0o755)
        self.images = []
        for number, colour in enumerate([(10, 100, 200), (255, 0, 7), (90, 91, 92)]):
            self.images.append(self.dir / f'{number}.png')
            png(self.images[-1], SIZE, colour)
        self.trace = self.dir / 'trace.txt'

    def environment(self, **more):
        own = {k: v for k, v in os.environ.items() if not k.startswith('FAKE_ASCENDCL')}
        return {**own, 'NPU_TRAIN_ASCENDCL': str(FAKE), 'FAKE_ASCENDCL_TRACE': str(self.trace), **more}

    def predict(self, *args, env=None, **more):
        return npu_tool('predict', *args, env=env or self.environment(**more))

    def logits(self, *args, **more):
        """The logits of the images, from the file of --logits."""
        self.assertDone(self.predict(*args, '--logits', self.dir / 'l.npy', **more))
        data = (self.dir / 'l.npy').read_bytes()
        self.assertIn(b"'descr': '<f4'", data)
        at = 10 + int.from_bytes(data[8:10], 'little')
        values = array.array('f', data[at:])
        return [list(values[10 * i:10 * (i + 1)]) for i in range(len(values) // 10)]

    def om(self, text, name='own.om'):
        (self.dir / name).write_text(text)
        return self.dir / name

    def assertClose(self, found, wanted):
        self.assertEqual(len(found), len(wanted))
        for row, other in zip(found, wanted):
            for a, b in zip(row, other): self.assertAlmostEqual(a, b, delta=2e-5 * max(1, abs(b)))

    def trained(self):
        config = self.config(precision='32-true')
        self.assertDone(train_app(config, f'output.dir={self.dir}/out', 'trainer.max_steps=1', 'trainer.limit_val_batches=0'))
        return run_dir(self.dir / 'out')

    def export(self, run, *args):
        path = dict(os.environ, PATH=f'{self.dir / "bin"}:{os.environ["PATH"]}')
        return json.loads(self.assertDone(npu_tool('export', '--checkpoint', run, '--to', self.dir / 'm.onnx', '--atc', '310P3', *args, '--json', env=path)))

    def test_from_a_training_to_the_predictions_of_an_offline_model(self):
        run = self.trained()
        metadata = self.export(run, '--atc-batch', '1,2')['metadata']
        mean, std = ([float(v) for v in metadata[f'npu_train.{key}'].split(',')] for key in ('mean', 'std'))
        wanted = [expected(c, mean, std) for c in ((10, 100, 200), (255, 0, 7), (90, 91, 92))]
        om = self.dir / 'm.om'
        self.assertIn('aipp', om.read_text())
        # Reads the images as bytes, in batches of 2 and 1.
        self.assertClose(self.logits('--om', om, *self.images), wanted)
        calls = self.trace.read_text()
        self.assertEqual([line.split()[1] for line in calls.splitlines() if line.startswith('aclmdlSetDynamicBatchSize')], ['2', '1'])
        self.assertEqual(calls.splitlines()[-1], NOTHING_LEFT)
        # Gives the same without AIPP, with the normalisation of the transforms, in fp32 and fp16.
        for kind, delta in ((0, 2e-5), (1, 4e-3)):
            (self.dir / 'm.om').write_text(f'input input {kind} -1 3 {SIZE} {SIZE}\noutput output 0 -1 10\nbatches 1 2\n')
            for row, other in zip(self.logits('--om', om, *self.images), wanted):
                for a, b in zip(row, other): self.assertAlmostEqual(a, b, delta=delta * max(1, abs(b)))
        # Takes names and numbers from the checkpoint instead of the file next to the model.
        (self.dir / 'm.onnx').rename(self.dir / 'elsewhere.onnx')
        document = json.loads(self.assertDone(self.predict('--om', om, '--checkpoint', run, '--json', '--top', '3', self.images[0])))
        top = document['predictions'][0]['top']
        best = max(range(10), key=lambda k: wanted[0][k])
        self.assertEqual(top[0]['class'], best)
        self.assertEqual(document['predictions'][0]['image'], str(self.images[0]))
        names = metadata['npu_train.classes'].split('\n')
        self.assertEqual(top[0]['name'], names[best])
        said = self.assertDone(self.predict('--om', om, '--checkpoint', run, self.images[0]))
        self.assertIn(f'%  {names[best]}\n', said)

    def test_images_of_other_sizes_are_prepared_as_the_validation_did(self):
        run = self.trained()
        self.export(run)
        large = self.dir / 'large.png'
        png(large, 77, (10, 100, 200))
        om = self.dir / 'm.om'
        rows = self.logits('--om', om, large, self.images[0])
        self.assertClose(rows[:1], rows[1:])
        # A gradient shows the interpolation, which must be that of predict --checkpoint, which reads the same pixels.
        pixels = bytes(v for y in range(48) for x in range(48) for v in (5 * x, 5 * y, 255 - 2 * x - 2 * y))
        (self.dir / 'ramp.png').write_bytes(png_of(48, pixels))
        by_metadata = self.logits('--om', om, self.dir / 'ramp.png')
        (self.dir / 'm.onnx').unlink()
        self.assertClose(self.logits('--om', om, '--checkpoint', run, self.dir / 'ramp.png'), by_metadata)

    def test_options_in_place_of_files(self):
        om = self.om(f'input input 0 2 3 {SIZE} {SIZE}\noutput output 1 2 10\n')  # the outputs are fp16
        mean, std = [0.5, 0.25, 0.125], [0.5, 0.25, 1]
        names = self.dir / 'names.txt'
        names.write_text(''.join(f'kind {k}\r\n' for k in range(10)))
        options = ('--mean', '0.5,0.25,0.125', '--std', '0.5,0.25,1')
        rows = self.logits('--om', om, *options, *self.images)  # 3 images, in batches of 2
        for row, colour in zip(rows, ((10, 100, 200), (255, 0, 7), (90, 91, 92))):
            for a, b in zip(row, expected(colour, mean, std)): self.assertAlmostEqual(a, b, delta=5e-3)
        self.assertEqual(len(rows), 3)
        said = self.assertDone(self.predict('--om', om, *options, '--classes', names, self.images[0]))
        self.assertIn('%  kind 9\n', said)
        code, _, warned = self.predict('--om', om, self.images[0])
        self.assertEqual(code, 0)
        self.assertIn('so that of ImageNet is used', warned)
        names.write_text('one\n')
        self.assertFails(self.predict('--om', om, '--classes', names, self.images[0]), 2, 'has 10 classes; there are 1 names in')

    def test_the_device_is_selected(self):
        om = self.om(f'input input 0 1 3 {SIZE} {SIZE}\noutput output 0 1 10\n')
        self.assertDone(self.predict('--om', om, '--device', 'npu:1', self.images[0], FAKE_ASCENDCL_DEVICES='2'))
        self.assertIn('aclrtSetDevice 1\n', self.trace.read_text())
        self.assertFails(self.predict('--om', om, '--device', 'npu:2', self.images[0], FAKE_ASCENDCL_DEVICES='2'), 4, 'there is no NPU 2; this process sees 0 to 1')
        self.assertFails(self.predict('--om', om, '--device', 'cpu', self.images[0]), 2, '--device cpu with --om; allowed: npu, npu:N')

    def test_where_the_library_is_found(self):
        om = self.om(f'input input 0 1 3 {SIZE} {SIZE}\noutput output 0 1 10\n')
        bare = {k: v for k, v in os.environ.items() if k not in ('NPU_TRAIN_ASCENDCL', 'ASCEND_HOME_PATH', 'ASCEND_TOOLKIT_HOME', 'LD_LIBRARY_PATH')}
        self.assertDone(self.predict('--om', om, self.images[0], env=bare | {'LD_LIBRARY_PATH': str(FAKE)}))
        cann = self.dir / 'cann'
        cann.mkdir()
        (cann / 'lib64').symlink_to(FAKE)
        for variable in ('ASCEND_HOME_PATH', 'ASCEND_TOOLKIT_HOME'):
            self.assertDone(self.predict('--om', om, self.images[0], env=bare | {variable: str(cann)}))
        missing = self.predict('--om', om, self.images[0], env=bare | {'NPU_TRAIN_ASCENDCL': str(self.dir)})
        self.assertFails(missing, 4, 'libascendcl.so is not found', str(self.dir), 'CANN', 'set_env.sh', 'NPU_TRAIN_ASCENDCL')
        self.assertFails(self.predict('--om', om, self.images[0], env=bare | {'NPU_TRAIN_ASCENDCL': str(EMPTY)}), 4, 'lacks aclInit', 'aclmdlExecute', 'CANN 5.0')
        broken = self.dir / 'broken.so'
        broken.write_text('no library')
        self.assertFails(self.predict('--om', om, self.images[0], env=bare | {'NPU_TRAIN_ASCENDCL': str(broken)}), 4, 'cannot be loaded', 'broken.so')

    def test_errors_name_the_file_the_code_and_what_to_do(self):
        image = self.images[0]
        wide = self.om('input input 0 1 3 24 32\noutput output 0 1 10\n', 'wide.om')
        self.assertFails(self.predict('--om', wide, image), 3, '0.png: has 32 x 32 pixels after the transforms', 'wide.om takes 24 x 32')
        self.assertFails(self.predict('--om', self.om('PK'), image), 3, 'own.om: ', 'failed with 145002: EH9999: the file is not an offline model', 'npu_tool export --atc')
        self.assertFails(self.predict('--om', self.dir / 'none.om', image), 3, 'none.om: is not a file')
        self.assertFails(self.predict('--om', self.om('input t 9 1 16\noutput y 0 1 10\n'), image), 3, 'the first one int64 [batch, 16]; supported')
        self.assertFails(self.predict('--om', self.om('input x 0 1 3 8 8\ninput y 0 1 3 8 8\noutput y 0 1 10\n'), image), 3, 'has 2 inputs')
        self.assertFails(self.predict('--om', self.om('input x 0 1 3 8 8\noutput y 0 1 10 4\n'), image), 3, 'its first output is float32 [batch, 10, 4]')
        om = self.om(f'input input 0 1 3 {SIZE} {SIZE}\noutput output 0 1 10\n')
        failed = self.predict('--om', om, image, FAKE_ASCENDCL_FAILS='aclmdlExecute', FAKE_ASCENDCL_CODE='507011')
        self.assertFails(failed, 4, '[AscendCL] aclmdlExecute failed with 507011: EH9999: planted in aclmdlExecute; hint: npu_tool doctor --explain 507011')
        self.assertEqual(self.trace.read_text().splitlines()[-1], NOTHING_LEFT)
        self.assertFails(self.predict('--om', om, image, FAKE_ASCENDCL_FAILS='aclrtMalloc', FAKE_ASCENDCL_CODE='207001'), 8, 'aclrtMalloc of')
        (self.dir / 'cut.png').write_bytes(image.read_bytes()[:60])
        self.assertFails(self.predict('--om', om, self.dir / 'cut.png'), 3, 'cut.png')
        self.assertEqual(self.trace.read_text().splitlines()[-1], NOTHING_LEFT)

    def test_options_that_contradict_each_other(self):
        om = self.om(f'input input 0 1 3 {SIZE} {SIZE}\noutput output 0 1 10\n')
        aipp = self.om(f'input input 0 1 3 {SIZE} {SIZE}\noutput output 0 1 10\naipp 0 0 0 1 1 1\n', 'aipp.om')
        image, options = self.images[0], ('--mean', '0,0,0', '--std', '1,1,1')
        self.assertFails(self.predict('--om', om, '--model', 'resnet18', image), 2, '--om has its own network')
        self.assertFails(self.predict('--om', om, 'model.depth=1', image), 2, '--om has its own network')
        self.assertFails(self.predict('--om', om, '--mean', '0,0,0', image), 2, '--mean and --std belong together')
        self.assertFails(self.predict('--om', om, '--mean', '0', '--std', '1', image), 2, 'need 3 numbers')
        self.assertFails(self.predict('--om', aipp, *options, image), 2, 'normalises images itself, by AIPP')
        self.assertFails(self.predict('--checkpoint', self.dir, *options, image), 2, '--mean, --std and --classes are for --om')
        self.assertFails(self.predict(image), 2, '--om FILE')
        (self.dir / 'own.onnx').write_text('no protocol buffer')
        self.assertFails(self.predict('--om', om, image), 3, 'own.onnx: is damaged, or is not an ONNX model')


if __name__ == '__main__':
    main()
