"""The C interface from a program in C, and the Python package on top of it, in a Python with torch and numpy."""
import json
import os
import pathlib
import shutil
import unittest

from peers import MODELS_PYTHON, Peer
from programs import BIN, SOURCE, ProgramTest, contents, main, run, run_dir, train_app

PROGRAM = BIN.parent / 'tests/c_program'
LIBRARY = BIN.parent / 'lib/libnpu_train_c.so.1'
SCRIPT = pathlib.Path(__file__).with_name('python_package.py')
PEER = Peer(MODELS_PYTHON, torch='import numpy, torch')


class FromC(ProgramTest):
    def test_a_training(self):
        out = self.assertDone(run(PROGRAM, 'train', self.dir))
        lines = dict(line.split(': ', 1) for line in out.splitlines())
        whole, stopped, resumed = json.loads(lines['whole']), json.loads(lines['stopped']), lines['resumed']
        self.assertEqual((whole['global_step'], whole['reason'], len(whole['history'])), (12, 'trainer.max_epochs reached', 3))
        self.assertEqual(stopped['global_step'], 6)  # because an event describes the step before the newest
        self.assertTrue(resumed.endswith('step=6'), resumed)
        # Tensors and a function of the program give the same data, and a stopped and resumed run equals the whole run.
        self.assertEqual(whole['final_val'], json.loads(lines['validated']))
        self.assertEqual(whole['final_val']['acc1'], 100)
        self.assertIn('a call on this trainer runs', lines['in an event'])
        self.assertEqual(lines['predictions'], '64 2 equal')
        # Counts each step, validation and epoch, and the checkpoints.
        self.assertGreaterEqual(int(lines['events']), 12 + 3 + 3)
        self.assertEqual(lines['tensors'], '0')  # everything that was passed was released
        self.assertIn('own/value', (self.dir / 'parts/version_0/metrics.csv').read_text().splitlines()[0])

    def test_misuse(self):
        out = self.assertDone(run(PROGRAM, 'misuse', self.dir))
        lines = dict(line.split(': ', 1) for line in out.splitlines())
        for name, code, words in (('no config', 2, 'config is NULL'), ('bad yaml', 2, 'config:1'), ('bad key', 2, 'max_epochs'),
                                  ('no place', 2, 'the place for the result is NULL'), ('no trainer', 2, 'the trainer is NULL'),
                                  ('no checkpoint', 6, '/none'), ('no targets', 2, 'targets is NULL'),
                                  ('half of val', 2, 'one of val_inputs and val_targets'),
                                  ('broken sample', 3, "the program's function returned 1 for sample 9"), ('no input', 2, 'input is NULL'),
                                  ('data twice', 2, 'has its data already'), ('flipped', 2, 'the stride -1 in dimension 3'),
                                  ('endless', 2, 'is larger than any memory'),
                                  ('other shape', 2, '')):
            self.assertTrue(lines[name].startswith(f'{code} '), f'{name}: {lines[name]}')
            self.assertIn(words, lines[name])
        self.assertEqual(lines['tensors'], '0')

    def test_only_the_interface_is_exported(self):
        out = self.assertDone(run('nm', '-D', '--defined-only', LIBRARY))
        names = [line.split()[-1] for line in out.splitlines()]
        header = (SOURCE / 'bindings/c/npu_train.h').read_text()
        self.assertTrue(names)
        for name in names: self.assertIn(f'{name.split("@")[0]}(', header)
        self.assertDone(run('gcc', '-std=c99', '-pedantic', '-Wall', '-Wextra', '-Werror', '-fsyntax-only', '-x', 'c', SOURCE / 'bindings/c/npu_train.h'))


@unittest.skipUnless(PEER.has('torch'), 'torch and numpy are not installed (scripts/setup --dev)')
class FromPython(ProgramTest):
    def python(self, *args, package=SOURCE / 'bindings/python', **env):
        return run(MODELS_PYTHON, *args, env={**os.environ, 'PYTHONPATH': str(package), 'NPU_TRAIN_C_LIBRARY': str(LIBRARY), 'OMP_NUM_THREADS': '1', **env}, cwd=self.dir)

    def script(self, case, *args): return json.loads(self.assertDone(self.python(SCRIPT, case, *args)).splitlines()[-1])

    def test_the_run_is_that_of_train_app(self):
        config = self.config()
        self.assertDone(train_app(config, f'output.dir={self.dir / "app"}'))
        history = json.loads((run_dir(self.dir / 'app') / 'history.json').read_text())
        document = self.script('from_file', config, self.dir / 'python')
        self.assertEqual(contents(self.dir / 'python'), contents(self.dir / 'app'))
        result = document['result']
        self.assertEqual((result['global_step'], result['reason'], result['skipped_steps']),
                         tuple(history[k] for k in ('global_step', 'reason', 'skipped_steps')))
        self.assertEqual([(e['train'], e['val']) for e in result['history']], [(e['train'], e['val']) for e in history['epochs']])
        self.assertEqual((document['steps'], document['epochs'], document['validations']), (result['global_step'] + result['skipped_steps'], 3, 3))
        document = self.script('in_parts', config, self.dir / 'parts')
        self.assertEqual(document['stopped']['global_step'], 26)  # because an event describes the step before the newest
        self.assertIn('step=26', document['path'])
        self.assertEqual(contents(self.dir / 'parts'), contents(self.dir / 'app'))
        answers = self.script('predictor', run_dir(self.dir / 'python'))
        self.assertEqual((len(answers['logits']), answers['logits'][0]), (2, answers['logits'][1]))

    def test_own_data(self):
        document = self.script('own_data')
        self.assertTrue(document['equal'])
        self.assertEqual((document['shape'], document['metrics']['acc1'], document['device']), ([48, 2], document['acc'], True))
        self.assertGreater(document['acc'], 90)
        self.assertIn('another owner', document['again'])

    def test_the_examples_of_the_document(self):
        text = (SOURCE / 'docs/bindings.md').read_text()
        blocks = [block.split('```')[0] for block in text.split('```python\n')[1:]]
        self.assertEqual(len(blocks), 2)
        script = self.dir / 'examples.py'
        script.write_text('import numpy\nimport torch\n' + ''.join(blocks).replace("'configs/", f"'{SOURCE}/configs/")
                          .replace("'data.val_size=32'", "'data.val_size=32', 'model={name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2}'")
                          .replace("'num_classes': 2}", "'num_classes': 2, 'depth': 1, 'dim': 32, 'heads': 2}"))
        out = self.assertDone(self.python(script))
        self.assertIn('trainer.max_epochs reached', out)
        self.assertIn('val/acc1', out)

    def test_the_end_of_the_interpreter_with_open_runs(self):
        self.assertEqual(self.script('left_open'), {'child': 7, 'released': True})

    def test_exceptions(self):
        found = self.script('exceptions')
        self.assertEqual(found['sample'], ['KeyError', "'sample without a label'", None])
        self.assertEqual(found['event'], ['ValueError', 'in an event', None])
        self.assertEqual((found['interrupt'][0], found['handler']), ('KeyboardInterrupt', True))
        self.assertEqual(found['both'], ['KeyError', "'in a worker'", None])
        self.assertEqual((found['skipped'], found['pickled']), (36, 'Error'))
        self.assertIn('close it when the call has ended', found['misuse'][0])
        self.assertIn('a call on this trainer runs', found['misuse'][1])
        self.assertIn('has its data already', found['twice'][1])
        self.assertEqual(found['kinds'][0], 'TypeError')
        for name, code, words in (('key', 2, 'max_epochs'), ('shape', 2, '8'), ('checkpoint', 6, '/none')):
            kind, message, number = found[name]
            self.assertEqual((kind, number), ('Error', code))
            self.assertIn(words, message)

    def test_an_import_that_cannot_work(self):
        self.assertFails(self.python('-c', 'import npu_train; npu_train.version()', NPU_TRAIN_C_LIBRARY=str(self.dir / 'none.so')), 1, 'none.so', 'scripts/setup')
        (self.dir / 'torch').mkdir()
        (self.dir / 'torch/__init__.py').write_text("__version__ = '2.0.0+cpu'")
        self.assertFails(self.python('-c', 'import npu_train; npu_train.version()'), 1, 'was built with libtorch', 'torch 2.0.0+cpu')

    def test_an_installed_package(self):
        """Installs a package that contains the library of the build."""
        site = self.dir / 'site'
        shutil.copytree(SOURCE / 'bindings/python', self.dir / 'source')  # pip builds inside the folder
        code, out, err = self.python('-m', 'pip', 'install', '--quiet', '--no-build-isolation', '--no-deps', '--no-index', '--target', site,
                                     self.dir / 'source', NPU_TRAIN_BUILD=str(BIN.parent))
        self.assertEqual(code, 0, out + err)
        self.assertTrue((site / 'npu_train/lib' / LIBRARY.name).is_file())
        document = json.loads(self.assertDone(run(MODELS_PYTHON, SCRIPT, 'own_data', env={k: v for k, v in os.environ.items() if k != 'NPU_TRAIN_C_LIBRARY'} |
                                                  {'PYTHONPATH': str(site)}, cwd=self.dir)).splitlines()[-1])
        self.assertTrue(document['equal'])


if __name__ == '__main__': main()
