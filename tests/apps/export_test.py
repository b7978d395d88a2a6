"""npu_tool export: files, checks, errors. onnx_test.py judges the files by onnxruntime."""
import json
import os
import pathlib
import re
import unittest

from programs import SOURCE, ProgramTest, main, needs_onnxruntime, npu_tool, run, run_dir, train_app

SMALL = ('--model', 'vit_tiny_cifar10', 'model.depth=1', 'model.dim=32', 'model.heads=2', 'model.patch_size=8')

# Stands for ATC: writes its options as the offline model. They are documented for ATC of CANN 8.0.
ATC = '''#!/usr/bin/env python3
import json, os, sys
given = dict(word.split('=', 1) for word in sys.argv[1:])
known = {'--framework', '--model', '--output', '--soc_version', '--input_format', '--input_shape', '--precision_mode', '--dynamic_batch_size', '--insert_op_conf'}
if set(given) - known or given['--framework'] != '5' or os.environ.get('FAIL'):
    print('E10001: an option is not valid')
    sys.exit(1)
if not open(given['--model'], 'rb').read(): sys.exit(2)
json.dump(given, open(given['--output'] + '.om', 'w'))
'''


class Export(ProgramTest):
    def export(self, *args):
        return json.loads(self.assertDone(npu_tool('export', *args, '--json')))

    @needs_onnxruntime
    def test_a_trained_model_with_what_its_images_need(self):
        config = self.config(precision='32-true')
        self.assertDone(train_app(config, f'output.dir={self.dir}/out', 'trainer.max_steps=4', 'trainer.limit_val_batches=1'))
        to = self.dir / 'new' / 'm.onnx'
        found = self.export('--checkpoint', run_dir(self.dir / 'out'), '--to', to, '--check')
        self.assertEqual(found['bytes'], to.stat().st_size)
        self.assertEqual((found['opset'], found['dtype'], found['data'], found['warnings']), (17, 'fp32', '', []))
        self.assertEqual(found['inputs'], [{'name': 'input', 'dtype': 'float32', 'shape': ['batch', 3, 32, 32]}])
        self.assertEqual(found['outputs'], [{'name': 'output', 'dtype': 'float32', 'shape': ['batch', 10]}])
        self.assertGreaterEqual(found['operators']['LayerNormalization'], 3)
        self.assertNotIn('Gelu', found['operators'])
        check, = found['checks']
        self.assertTrue(check['by'].startswith('onnxruntime '), check)
        self.assertTrue(check['agrees'] and check['difference'] < 1e-5, check)
        metadata = found['metadata']
        self.assertEqual(metadata['npu_train.model'], 'vit_tiny_cifar10')
        self.assertEqual(len(metadata['npu_train.mean'].split(',')), 3)
        self.assertEqual(len(metadata['npu_train.std'].split(',')), 3)
        self.assertRegex(metadata['npu_train.checkpoint'], '^[0-9a-f]{16}$')
        for value in metadata.values(): self.assertIn(value.encode(), to.read_bytes())

    @needs_onnxruntime
    def test_opset_dtype_and_second_file(self):
        to = self.dir / 'm.onnx'
        old = self.export(*SMALL, '--to', to, '--opset', 15, '--check')
        self.assertNotIn('LayerNormalization', old['operators'])
        half = self.export(*SMALL, '--to', to, '--dtype', 'fp16', '--check')
        self.assertLess(half['bytes'], 0.65 * old['bytes'])
        self.assertGreater(half['checks'][0]['difference'], 1e-6)
        self.assertTrue(half['checks'][0]['agrees'])
        external = self.export(*SMALL, '--to', to, '--external-data', '--check')
        data = pathlib.Path(external['data'])
        self.assertEqual(data.stat().st_size, external['data_bytes'])
        self.assertLess(external['bytes'], old['bytes'] / 3)
        self.assertTrue(external['checks'][0]['agrees'])
        self.export(*SMALL, '--to', to)
        self.assertEqual([p.name for p in self.dir.iterdir()], ['m.onnx'])

    @needs_onnxruntime
    def test_a_free_size_of_images(self):
        sizes = ('model.image_size=64', '--num-classes', '7', '--dynamic', 'batch,height,width')
        found = self.export('--model', 'resnet18', *sizes, '--to', self.dir / 'm.onnx', '--check')
        self.assertEqual(found['inputs'][0]['shape'], ['batch', 3, 'height', 'width'])
        self.assertEqual(found['outputs'][0]['shape'], ['batch', 7])

    def test_errors_name_what_is_allowed_and_leave_nothing(self):
        to = self.dir / 'm.onnx'
        self.assertFails(npu_tool('export', '--to', to), 2, '[export]', '--checkpoint DIR, or --model NAME')
        self.assertFails(npu_tool('export', '--model', 'resnet19', '--to', to), 2, 'resnet19', 'resnet18')
        self.assertFails(npu_tool('export', *SMALL, '--to', to, '--opset', 14), 2, '[export_onnx] opset 14; allowed: 15 to 20; hint')
        self.assertFails(npu_tool('export', *SMALL, '--to', to, '--dtype', 'bf16'), 2, 'bf16')
        self.assertFails(npu_tool('export', *SMALL, 'optimizer.lr=1', '--to', to), 2, 'allowed: model.KEY=VALUE')
        self.assertFails(npu_tool('export', *SMALL, '--dynamic', 'tokens', '--to', to), 2, "no input has a free size 'tokens'")
        self.assertFails(npu_tool('export', '--checkpoint', self.dir, '--to', to), 6, str(self.dir))
        self.assertFails(npu_tool('export', *SMALL, '--to', '/proc/m.onnx'), 6, '/proc')
        self.assertEqual(list(self.dir.iterdir()), [])
        config = self.config(precision='32-true')
        self.assertDone(train_app(config, f'output.dir={self.dir}/out', 'trainer.max_steps=1', 'trainer.limit_val_batches=0'))
        trained = ('--weights', run_dir(self.dir / 'out') / 'checkpoints/last/model.safetensors')
        self.assertFails(npu_tool('export', *SMALL, 'model.num_classes=7', *trained, '--to', to), 6, "for the head 'heads.head', which would be random")
        self.assertFalse(to.exists())
        self.assertDone(npu_tool('export', *SMALL, *trained, '--to', to))

    def test_a_compiler_for_ascend(self):
        """A stand-in for ATC that accepts what CANN documents."""
        atc = self.dir / 'bin' / 'atc'
        atc.parent.mkdir()
        atc.write_text(ATC)
        atc.chmod(0o755)
        config = self.config(precision='32-true')
        self.assertDone(train_app(config, f'output.dir={self.dir}/out', 'trainer.max_steps=1', 'trainer.limit_val_batches=0'))
        to = self.dir / 'm.onnx'
        export = ('export', '--checkpoint', run_dir(self.dir / 'out'), '--to', to, '--atc', 'Ascend910B1', '--atc-batch', '1,4', '--json')
        absent = json.loads(self.assertDone(npu_tool(*export)))['atc']
        self.assertIsNone(absent['output'])
        self.assertEqual(absent['script'], str(self.dir / 'm.atc.sh'))
        found = json.loads(self.assertDone(npu_tool(*export, env=dict(os.environ, PATH=f'{atc.parent}:{os.environ["PATH"]}'))))['atc']
        self.assertEqual(found['output'], str(self.dir / 'm.om'))
        given = json.loads((self.dir / 'm.om').read_text())
        self.assertEqual(given['--input_shape'], 'input:-1,3,32,32')
        self.assertEqual(given['--dynamic_batch_size'], '1,4')
        self.assertIn('var_reci_chn_2', pathlib.Path(given['--insert_op_conf']).read_text())
        self.assertEqual(run('sh', found['script'], env=dict(os.environ, PATH=f'{atc.parent}:{os.environ["PATH"]}'))[0], 0)
        broken = dict(os.environ, PATH=f'{atc.parent}:{os.environ["PATH"]}', FAIL='1')
        self.assertFails(npu_tool(*export, env=broken), 4, '[atc] failed: ', 'E10001')
        self.assertFails(npu_tool('export', *SMALL, '--to', to, '--atc', 'H100'), 2, 'H100')
        self.assertFails(npu_tool('export', *SMALL, '--to', to, '--atc', '910B1', '--opset', 20), 2, 'opset 20; ATC accepts 11 to 18')

    def test_every_operator_with_a_row_is_documented(self):
        sources = ''.join(p.read_text() for p in (SOURCE / 'src/export').glob('rows_*.cpp'))
        rows = set(re.findall(r'\{"(\w+)",\s+1[57],', sources))
        self.assertGreater(len(rows), 150)
        listed = (SOURCE / 'docs/export.md').read_text().split('## Operators')[1]
        self.assertEqual(rows, set(re.findall(r'`(\w+)`', listed)))

    @needs_onnxruntime
    def test_the_text_for_people(self):
        said = self.assertDone(npu_tool('export', *SMALL, '--to', self.dir / 'm.onnx', '--check'))
        self.assertIn("input 'input': float32 [batch, 3, 32, 32]", said)
        self.assertRegex(said, r'onnxruntime [0-9.]+: agrees \(largest difference')

    def test_without_onnxruntime_the_file_is_written_and_not_checked(self):
        to, atc = self.dir / 'm.onnx', ('--atc', 'Ascend910B1')
        env = dict(os.environ, NPU_TRAIN_ONNX_PYTHON=str(self.dir / 'python'))
        self.assertDone(npu_tool('export', *SMALL, '--to', to, env=env))
        to.unlink()
        result = npu_tool('export', *SMALL, '--to', to, *atc, '--check', env=env)
        self.assertFails(result, 4, '[check_onnx] not checked: ', str(self.dir / 'python'), 'pip install onnxruntime', 'NPU_TRAIN_ONNX_PYTHON')
        self.assertIn(f'wrote {to}', result[1])
        self.assertNotIn('agrees', result[1])
        self.assertEqual([p.name for p in self.dir.iterdir()], ['m.onnx'])
        code, said, _ = npu_tool('export', *SMALL, '--to', to, '--check', '--json', env=env)
        self.assertEqual(code, 4)
        self.assertNotIn('checks', json.loads(said))


if __name__ == '__main__': main()
