#!/usr/bin/env python3
"""The inputs that npu_tool compare accepts, and its messages about other inputs: configurations and their defaults, options of other
inputs, files that are damaged or are a part of something, and runs that ended early. Also the values of the section dump."""
import json
import pickle
import re
import unittest
import zipfile

from programs import FULL, ProgramTest, main, npu_tool, train_app

CONFIG = '''
seed: 7
device: cpu
precision: 32-true
model: {name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8}
data: {name: generated, train_size: 64, val_size: 32, batch_size: 16, num_workers: 0}
optimizer: {name: adamw, lr: 0.002}
trainer: {max_epochs: 2, threads: 1, log_every_n_steps: 1}
'''


class CompareInputsTest(ProgramTest):
    def run_folder(self, name, *words):
        """The folder of a new run, which has a dump in its folder `dump`."""
        code, _, error = train_app(self.config(CONFIG), f'output={{dir: {self.dir / "out"}, name: {name}}}', 'dump.steps=[0]', *words)
        self.assertEqual(code, 0, error)
        return self.dir / 'out' / name / 'version_0'

    def compare(self, *words):
        code, out, error = npu_tool('compare', *words, '--json')
        self.assertIn(code, (0, 7), error)
        return code, json.loads(out)

    def said(self, *words):
        """(exit code, output) of train_app with a dump, in a run of one step."""
        code, out, error = train_app(self.config(CONFIG), 'output.dir=""', 'trainer.max_steps=1', 'checkpoint.enabled=false',
                                     f'dump.dir={self.dir / "said"}', *words)
        return code, out + error

    def test_a_configuration_agrees_with_what_the_run_made_of_it(self):
        run = self.run_folder('a')
        config = self.config(CONFIG)
        for a, b in ((config, run / 'config.yaml'), (run / 'config.yaml', config)):
            code, result = self.compare(a, b)
            self.assertEqual(code, 0, result)
            told = {d['path']: d for d in result['config']}
            self.assertFalse([d for d in told.values() if d['numeric']])
            self.assertIn('(left to the data)', (told['model.num_classes']['a'], told['model.num_classes']['b']))
        spelled = self.config(CONFIG.replace('lr: 0.002', 'lr: 0.002, betas: [0.9, 0.999], eps: 1.0e-8'), 'spelled.yaml')
        self.assertEqual(self.compare(config, spelled)[1]['config'], [])
        other = self.config(CONFIG.replace('lr: 0.002', 'lr: 0.002, eps: 1.0e-6'), 'other.yaml')
        code, result = self.compare(other, config)
        self.assertEqual((code, [d['path'] for d in result['config']], result['config'][0]['b']), (7, ['optimizer.eps'], '1e-08'))

    def test_a_configuration_of_another_program_is_compared_as_it_is_written(self):
        plain, spelled = self.config('optimizer: {name: sgd}\nsteps: 3\n', 'p.yaml'), self.config(
            'optimizer: {name: sgd, momentum: 0}\nsteps: 3\n', 's.yaml')
        code, result = self.compare(plain, spelled)
        self.assertEqual((code, result['config'][0]['a'], result['notes']), (7, '(not given)', []))
        typo = self.config(CONFIG.replace('max_epochs', 'max_epoch'), 'typo.yaml')
        code, result = self.compare(self.config(CONFIG), typo)
        self.assertEqual(code, 7)
        self.assertIn("trainer.max_epoch: no such key; did you mean 'max_epochs'?", result['notes'][0])
        self.assertIn('no defaults were filled in', result['notes'][0])

    # Options that each kind of input accepts; every other kind must refuse them.
    OPTIONS = {'--reference': ('dump',), '--proportion': ('dump',), '--steps': ('dump',), '--rank': ('dump',), '--strict': ('dump',),
               '--sample-elements': ('dump',),
               **{name: ('dump', 'checkpoint') for name in ('--atol', '--rtol', '--tolerance', '--exact', '--mapping', '--strict-names', '--sample',
                                                            '--seed', '--layers')},
               **{name: ('run', 'history') for name in ('--columns', '--columns-b', '--shift', '--mean-rtol', '--lr-rtol')},
               '--rows': ('dump', 'checkpoint', 'run', 'history'),
               **{name: ('dump', 'checkpoint', 'run', 'history', 'config', 'environment') for name in ('--csv', '--html', '--out', '--json')}}

    def test_every_option_is_heeded_or_refused(self):
        run = self.run_folder('a')
        inputs = {'dump': run / 'dump', 'checkpoint': run / 'checkpoints', 'run': run, 'history': run / 'metrics.csv',
                  'config': run / 'config.yaml', 'environment': run / 'environment.json'}
        mapping = self.dir / 'mapping.yaml'
        mapping.write_text('heads.head: heads.head\n')
        values = {'--reference': [run / 'dump'], '--proportion': ['3', '--reference', run / 'dump'], '--steps': ['0'], '--rank': ['rank0'], '--strict': [],
                  '--atol': ['1'], '--rtol': ['1'], '--tolerance': ['head=1,1'], '--exact': [], '--mapping': [mapping], '--strict-names': [],
                  '--sample': ['0.9'], '--sample-elements': ['0.9', '--seed', '3'], '--seed': ['3', '--sample', '0.9'], '--layers': ['head'], '--columns': ['loss=loss'],
                  '--columns-b': ['loss=loss'], '--shift': ['0'], '--mean-rtol': ['1'], '--lr-rtol': ['1'], '--rows': ['3'],
                  '--csv': [self.dir / 'x.csv'], '--html': [self.dir / 'x.html'], '--out': [self.dir / 'x.json'], '--json': []}
        of_help = set(re.findall(r'^  (?:-\w,)?(--[a-z-]+)', npu_tool('compare', '--help')[1], re.M)) - {'--help'}
        self.assertEqual(of_help, {*self.OPTIONS, '--ranks'})  # apps.rank_comparison tests --ranks, which has inputs and options of its own
        for i, (option, kinds) in enumerate(self.OPTIONS.items()):
            others = [kind for kind in inputs if kind not in kinds]  # the kinds that refuse one of the options
            for kind in inputs if FULL else [kinds[i % len(kinds)], *others[i % max(len(others), 1):][:1]]:
                path = inputs[kind]
                with self.subTest(option=option, kind=kind):
                    result = npu_tool('compare', path, path, option, *values[option])
                    if kind in kinds:
                        self.assertEqual(result[0], 0, result)
                    else:
                        self.assertFails(result, 2, option + ' applies only to ', str(path))
        self.assertFails(npu_tool('compare', inputs['dump'], inputs['dump'], '--proportion', '3'), 2, 'requires --reference')
        self.assertFails(npu_tool('compare', inputs['dump'], inputs['dump'], '--seed', '3'), 2, 'requires --sample')
        self.assertFails(npu_tool('compare', inputs['dump'], inputs['dump'], '--exact', '--atol', '1'), 2, '--exact', '--atol')

    def test_damaged_and_hostile_weights_are_bad_input(self):
        class Hostile:
            def __reduce__(self): return (print, ('executed',))
        files = {'plain.pth': b'garbage', 'pickled.pt': pickle.dumps(Hostile()), 'cut.safetensors': b'xx'}
        for name, content in files.items(): (self.dir / name).write_bytes(content)
        with zipfile.ZipFile(self.dir / 'hostile.pth', 'w') as archive: archive.writestr('archive/data.pkl', pickle.dumps(Hostile()))
        for name in (*files, 'hostile.pth'):
            with self.subTest(name):
                result = npu_tool('compare', self.dir / name, self.dir / name)
                self.assertFails(result, 3, str(self.dir / name))
                self.assertNotIn('executed', result[1])

    def test_what_is_in_a_folder_or_around_a_file_is_named(self):
        a, b = self.run_folder('a'), self.run_folder('b')
        step = 'dump/step0/rank0/'
        for one, other in ((a / step / 'dump.json', b / step / 'dump.json'), (a / 'dump', b / step / 'dump.json')):
            code, result = self.compare(one, other)
            self.assertEqual(code, 0)
            self.assertGreater(result['steps'][0]['compared'], 50)
        for part in ('stack.json', 'construct.json'):
            self.assertFails(npu_tool('compare', a / step / part, b / step / part), 3, 'belongs to the dump', str(a / step.rstrip('/')))
        self.assertFails(npu_tool('compare', a.parent, b.parent), 3, f'{a} (a run folder)')
        self.assertFails(npu_tool('compare', a, b / 'config.yaml'), 2, "the run folder's config.yaml")

    def test_histories_of_runs(self):
        a, b = self.run_folder('a'), self.run_folder('b')
        for one, other, steps in (('history.json', 'history.json', 2), ('metrics.csv', 'metrics.csv', 8), ('', 'metrics.csv', 8),
                                  ('history.json', 'metrics.csv', 2), ('', 'history.json', 2)):
            with self.subTest((one, other)):
                code, result = self.compare(a / one, b / other)
                self.assertEqual((code, result['history']['steps'], result['history']['max_relative']), (0, steps, 0), result['summary'])
        short = [self.run_folder(name, 'trainer.max_steps=2', 'trainer.log_every_n_steps=50') for name in 'cd']
        for file, word in (('history.json', 'ended in its first epoch'), ('metrics.csv', 'no row is from training')):
            code, result = self.compare(short[0] / file, short[1] / file)
            self.assertEqual((code, result['history']['steps']), (0, 1))
            self.assertTrue(any(word in note for note in result['history']['notes']), result['history']['notes'])

        code, _, error = npu_tool('compare', self.run_folder('e', 'trainer.max_steps=2') / 'metrics.csv', short[0] / 'history.json')
        self.assertEqual(code, 3)
        self.assertIn('validation at its end', error)

    def test_a_tolerance_of_no_layer_is_told_of_checkpoints_too(self):
        run = self.run_folder('a')
        for path in (run / 'dump', run / 'checkpoints'):
            _, result = self.compare(path, path, '--tolerance', 'no_such*=1,1')
            self.assertIn('--tolerance no_such* matches no compared layer or call', result['notes'])

    def test_numbers_out_of_range_are_told_shortly(self):
        path = self.config(CONFIG)
        for option, value in (('--atol', '-1'), ('--rtol', 'nan'), ('--rows', '-3')):
            result = npu_tool('compare', path, path, option, value)
            self.assertFails(result, 2, f'{option}: {value} is not allowed; allowed: a number of 0 or more')
            self.assertLess(len(result[2]), 200)
        self.assertFails(npu_tool('memory', path, '--check', '-1'), 2, '-1 is not allowed; allowed: a number above 0')
        self.assertFails(train_app(path, 'optimizer.lr=1e30', 'output.dir=""'), 2, 'at least 0 and less than 1e30')

    def test_slips_of_the_pen(self):
        run = self.run_folder('a')
        dump, log = run / 'dump', run / 'metrics.csv'
        self.assertEqual(self.compare(dump, dump, '--rank', '0')[0], 0)
        for words, code, message in (
                ((dump, dump, '--layers', 'nosuch'), 3, "--layers nosuch selects; allowed: last, sensitive, a part of a call's name"),
                ((run / 'checkpoints', run / 'checkpoints', '--layers', 'nosuch'), 3, '--layers nosuch selects; allowed: last'),
                ((dump, dump, '--reference', run / 'config.yaml'), 3, f'--reference {run / "config.yaml"} is a configuration; allowed: a dump'),
                ((dump, dump, '--reference', run), 3, f'--reference {run} is a run folder; allowed: a dump'),
                ((dump, dump, '--mapping', self.config(CONFIG)), 2, "each line must be 'name in A: name in B'"),
                ((dump, dump, '--csv', '/proc/x.csv'), 6, 'choose a writable folder'),
                ((dump, dump, '--html', self.dir / 'none' / 'x.html'), 6, 'create the folder first'),
                ((log, log, '--mean-rtol', '0'), 2, '--mean-rtol: 0 is not allowed; allowed: a number above 0'),
                ((dump, ''), 2, 'B is empty'),
                ((self.config('a: [1', 'broken.yaml'), self.config(CONFIG)), 3, 'invalid YAML'),
                ((next((run / 'checkpoints').glob('epoch*')) / 'manifest.json', log), 3, 'belongs to the checkpoint'),
                ((run / 'train.log', run / 'train.log'), 3, f'its numbers are in {log}')):
            with self.subTest(words):
                result = npu_tool('compare', *words)
                self.assertFails(result, code, message)
                self.assertEqual(result[1], '')  # the error comes before the comparison

    def test_words_of_the_dump_section(self):
        for word, message in (('dump.level=L0', 'the name here is module'), ('dump.level=l1', 'the name here is op'),
                              ('dump.summary=md5', 'the name here is crc32'),
                              ('dump={task: overflow_check, data_mode: [optimizer]}', 'dumps nothing')):
            code, text = self.said(word)
            self.assertEqual(code, 2, text)
            self.assertIn(message, text)
        code, text = self.said('dump.data_mode=[optimizer]')
        self.assertEqual((code, 'warning' in text), (0, False), text)
        self.assertIn('Module.optimizer', (self.dir / 'said/step0/rank0/dump.json').read_text())
        for word, message in (('dump.list=[hesd]', "dump.list: 'hesd' matches no layer or operator at dump.level=module; did you mean 'head'?"),
                              ('dump.list=[head, encodr.*]', "'encodr.*' matches no layer"),
                              ('dump.scope=[hed, head]', "dump.scope: 'hed' matches no layer or operator at dump.level=module, so the scope is empty"),
                              ('dump.scope=[head, xyz]', "'xyz' matches no layer or operator at dump.level=module, so the scope continues to the end")):
            code, text = self.said(word)
            self.assertEqual(code, 0, text)
            self.assertIn(message, text)
        self.assertIn('no layer or operator of step 0 was dumped; selection: ', self.said('dump.sample=1e-9')[1])

    def test_a_dump_that_cannot_be_written_names_its_option(self):
        for folder in ('/proc/no_dump', self.config(CONFIG) / 'below'):
            code, text = self.said(f'dump.dir={folder}')
            self.assertEqual(code, 6, text)
            self.assertIn('choose another one with dump.dir=', text)
            self.assertNotIn('create the folder first', text)

    def test_levels_have_the_words_of_the_configuration(self):
        by_level = {}
        for level in ('module', 'op'):
            by_level[level] = self.dir / level
            self.assertEqual(train_app(self.config(CONFIG), 'output.dir=""', 'trainer.max_steps=1', 'checkpoint.enabled=false',
                                       f'dump={{level: {level}, dir: {by_level[level]}}}')[0], 0)
        out = npu_tool('compare', by_level['op'], by_level['module'])[1]
        self.assertIn('missing in A: level module on this side, op on the other', out)


if __name__ == '__main__':
    main()
