"""Exported models by onnx.checker and onnxruntime, which share nothing with the export: skipped without them."""
import json
import subprocess
import unittest

from programs import BIN, FULL, ONNX_PYTHON, ProgramTest, main, npu_tool, run

# Program that prints {model: largest difference relative to the largest output, or an error} as JSON.
JUDGE = '''
import json, pathlib, sys
import numpy, onnx, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.log_severity_level = 3
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob('*.onnx')):
    stem = str(path)[:-len('.onnx')]
    try:
        onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])
        inputs = {v.name: numpy.load(f'{stem}.in{"xyz".index(v.name)}.npy') for v in session.get_inputs()}
        given, expected = session.run(None, inputs)[0], numpy.load(stem + '.out.npy')
        if given.shape != expected.shape or given.dtype != expected.dtype:
            found[path.stem] = f'{given.dtype} {given.shape}, not {expected.dtype} {expected.shape}'
            continue
        apart = numpy.abs(given.astype('f8') - expected.astype('f8')).max()
        found[path.stem] = float(apart / max(numpy.abs(expected.astype('f8')).max(), 1e-3))
    except Exception as e:
        found[path.stem] = str(e)[:300]
print(json.dumps(found))
'''


def has_onnx(): return subprocess.run([ONNX_PYTHON, '-c', 'import numpy, onnx, onnxruntime'], capture_output=True).returncode == 0


def registered_models():
    return [line.split()[0] for line in run(BIN / 'train_app', '--list', 'models')[1].splitlines()]


@unittest.skipUnless(has_onnx(), 'onnx and onnxruntime are not installed (pip install onnx onnxruntime; NPU_TRAIN_ONNX_PYTHON)')
class Onnx(ProgramTest):
    maxDiff = None

    def judge(self, folder):
        code, said, error = run(ONNX_PYTHON, '-c', JUDGE, folder)
        self.assertEqual(code, 0, error)
        return json.loads(said)

    def test_operators_and_networks_of_users_at_an_unseen_batch(self):
        code, _, error = run(BIN.parent / 'tests' / 'onnx_samples', self.dir)
        self.assertEqual(code, 0, error)
        found = self.judge(self.dir)
        self.assertGreater(len(found), 300)
        for opset in (15, 17, 20): self.assertIn(f'tagger-{opset}-fp16', found)
        wrong = {name: difference for name, difference in found.items()
                 if not isinstance(difference, float) or not difference <= (2e-3 if name.endswith('fp16') else 1e-5)}
        self.assertEqual(wrong, {})

    def test_every_registered_model_at_an_unseen_batch(self):
        """Uses npu_tool export --check. Large models get fewer layers."""
        decoder = ['model.layers=2', 'model.dim=48', 'model.heads=2', 'model.vocab_size=97', 'model.context=21']
        smaller = {'resnet': ['model.image_size=64'], 'vit': ['model.image_size=64', 'model.depth=2'], 'vit_tiny_cifar10': [],
                   'gpt': decoder, 'bert': decoder, 'clip': ['model.vision_layers=2', 'model.text_layers=2', 'model.vocab_size=97', 'model.end_token=0', 'model.image_size=64'], 'clip_tiny': [], 'internvl_tiny': [],
                   'internvl': [*decoder, 'model.kv_heads=1', 'model.hidden=96', 'model.vision_layers=2', 'model.vision_dim=32', 'model.vision_heads=2', 'model.image_size=56', 'model.image_token=5'],
                   'glm': [*decoder, 'model.bos_token=5', 'model.gmask_token=4', 'model.mask_token=3'], 'llama': [*decoder, 'model.kv_heads=1', 'model.hidden=96'], 'qwen': [*decoder, 'model.kv_heads=1', 'model.hidden=96']}
        keys = lambda name: smaller[name if name in smaller else name.split('_')[0].rstrip('0123456789')]
        models = [name for name in registered_models() if name != 'torchscript']  # its network comes from a file
        alike = ('resnet34', 'resnet101', 'resnet152', 'vit', 'vit_b16_ascend', 'vit_b32', 'vit_l16', 'vit_small', 'vit_tiny')  # these have the same layers as others, in other numbers and sizes
        if not FULL: models = [name for name in models if name not in alike]
        self.assertGreater(len(models), 10)
        # Networks of a family have the same operators, so the large ones are tested at one opset.
        everywhere = [('fp32', 15, 1e-5), ('fp32', 17, 1e-5), ('fp32', 20, 1e-5), ('fp16', 17, 2e-3)]
        for name in models:
            for dtype, opset, tolerance in everywhere if name in ('resnet18', 'vit_tiny_cifar10') else everywhere[1:2]:
                with self.subTest(name, opset=opset, dtype=dtype):
                    to = self.dir / 'm.onnx'
                    code, said, error = npu_tool('export', '--model', name, *keys(name), '--to', to, '--opset', opset, '--dtype', dtype, '--check',
                                                 '--json')
                    self.assertEqual(code, 0, said + error)
                    check, = json.loads(said)['checks']
                    self.assertTrue(check['by'].startswith('onnxruntime '), check)
                    self.assertLess(check['difference'], tolerance)


if __name__ == '__main__': main()
