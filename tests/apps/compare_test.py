#!/usr/bin/env python3
"""npu_tool compare over dumps of real runs: exit status, files that it writes, dumps of killed runs and of Python, bad input."""
import json
import random
import re
import shutil
import signal
import time
import unittest
import zipfile

import browser
from html_page_test import check_page
from programs import BIN, FULL, SOURCE, ProgramTest, main, npu_tool, run, run_dir, train_app

try:
    import torch
except ImportError:
    torch = None

STEPS = ('trainer.max_steps=2', 'checkpoint.enabled=false', 'output.dir=""')


class CompareTest(ProgramTest):
    def dump(self, name, *words, precision='32-true', steps=STEPS):
        code, _, error = train_app(self.config(precision=precision), *steps, f'dump.dir={self.dir / name}', *words)
        self.assertEqual(code, 0, error)
        return self.dir / name

    def compare(self, a, b, *words):
        code, out, error = npu_tool('compare', a, b, '--json', *words)
        self.assertIn(code, (0, 3, 7), error)
        self.assertTrue(out, error)
        return code, json.loads(out)

    def data(self, dump, step=0):
        return json.loads((dump / f'step{step}/rank0/dump.json').read_text())['data']

    def test_equal_runs_agree_and_a_changed_layer_is_named(self):
        a, b = self.dump('a', 'dump.task=tensor'), self.dump('b', 'dump.task=tensor')
        code, result = self.compare(a, b)
        self.assertEqual(code, 0)
        self.assertIsNone(result['first_divergence'])
        self.assertGreater(result['steps'][0]['compared'], 50)
        other = self.dump('other', 'dump.task=tensor', 'seed=8')
        code, result = self.compare(a, other)
        self.assertEqual(code, 7)
        self.assertEqual(result['first_divergence']['step'], 0)
        code, out, _ = npu_tool('compare', a, other)
        self.assertEqual(code, 7)
        self.assertIn('first divergence: ', out)
        self.assertIn('beyond tolerance', out.splitlines()[0])

    def test_the_readme_s_demo_of_two_healthy_runs_agrees(self):
        """Runs the demo as it is printed, and with bf16 computed as on processors without units for it."""
        section = (SOURCE / 'README.md').read_text().split('## Do two runs agree?')[1].split('\n## ')[0]
        commands = re.search(r'```sh\n(.*?)```', section, re.S).group(1).strip().splitlines()
        self.assertEqual(sum('precision=bf16-mixed' in line for line in commands), 1)
        for name, target in (('build', BIN.parent), ('configs', SOURCE / 'configs')): (self.dir / name).symlink_to(target)
        emulated = [line.replace('precision=bf16-mixed', 'precision=bf16-mixed cpu_low_precision=emulated') for line in commands[1:]]
        for lines in (commands, emulated) if FULL else (commands,):
            code, out, error = run('bash', '-euo', 'pipefail', '-c', '\n'.join(lines), cwd=self.dir, timeout=1200)
            self.assertEqual(code, 0, out + error)
            self.assertIn('The runs agree', out)

    def test_equal_environments_show_a_single_bit(self):
        a, b = self.dump('a'), self.dump('b')
        path = b / 'step0/rank0/dump.json'
        document = json.loads(path.read_text())
        leaf = document['data']['Module.head.Layer.forward.0']['output'][0]
        leaf['Max'] *= 1 + 1e-12
        path.write_text(json.dumps(document))
        code, result = self.compare(b, a)
        self.assertEqual(code, 0)
        self.assertTrue(result['first_divergence']['within_tolerance'])
        self.assertEqual(result['first_divergence']['layer'], 'head')

    def test_a_lost_gradient_differs_and_missing_calls_are_told(self):
        a, b = self.dump('a'), self.dump('b')
        path = b / 'step0/rank0/dump.json'
        document = json.loads(path.read_text())
        lost = next(k for k in document['data'] if 'parameters_grad' in k)
        del document['data'][lost]
        path.write_text(json.dumps(document))
        code, result = self.compare(b, a)
        self.assertEqual(code, 7)
        self.assertFalse(result['complete'])
        only = self.dump('only', 'dump.list=[head]')
        code, result = self.compare(only, a)  # dump.list has requested only these calls
        self.assertEqual(code, 0)
        self.assertIn('the rest exists on one side only', result['summary'])

    def test_statistics_find_the_same_place_as_values(self):
        low = {task: self.dump('low' + task, f'dump.task={task}', 'optimizer.lr=0.004') for task in ('statistics', 'tensor')}
        high = {task: self.dump('high' + task, f'dump.task={task}') for task in ('statistics', 'tensor')}
        found = {task: self.compare(low[task], high[task])[1]['first_divergence'] for task in low}
        self.assertEqual(found['tensor']['cause'], 'optimizer')
        self.assertEqual(found['statistics']['call'], found['tensor']['call'])
        self.assertIn('learning rate', found['tensor']['likely'][0])

    def test_the_page_and_the_table(self):
        a, b = self.dump('a', 'dump.level=mix'), self.dump('b', 'dump.level=mix', precision='bf16-mixed')
        page, table = self.dir / 'c.html', self.dir / 'c.csv'
        code, _, error = npu_tool('compare', b, a, '--html', page, '--csv', table)
        self.assertIn(code, (0, 7), error)
        header = table.read_text().splitlines()[0].split(',')
        for column in ('NPU Name', 'Bench Name', 'NPU Tensor Shape', 'L2norm diff', 'NormRelativeErr', 'Result', 'Err_message'):
            self.assertIn(column, header)
        values = self.dir / 'values.html'
        c = self.dump('c', 'dump.task=tensor')
        self.assertEqual(npu_tool('compare', c, c, '--html', values)[0], 0)
        for column in ('Mean abs', 'RMSE', 'Euclidean', 'Norm A / B', 'Within 1/1000', 'Within 5/1000'):
            self.assertIn(column, values.read_text())
        if browser.find() is None:
            self.skipTest('no chromium or google-chrome on this machine: the pages were not opened')
        with browser.Browser() as tab:
            for path in (page, values):
                check_page(self, tab, path)
                self.assertEqual(tab.problems, [])

    @unittest.skipIf(torch is None, 'no torch in this Python')
    def test_python_reads_what_was_dumped(self):
        a = self.dump('a', 'dump.task=tensor', precision='bf16-mixed')
        seen = 0
        for name, call in self.data(a).items():
            for leaf in call.get('output', []) if isinstance(call.get('output'), list) else []:
                if leaf is None:
                    continue
                value = torch.load(a / 'step0/rank0/dump_tensor_data' / leaf['data_name'], weights_only=True)
                self.assertEqual(str(value.dtype), leaf['dtype'], name)
                self.assertEqual(list(value.shape), leaf['shape'], name)
                self.assertAlmostEqual(value.double().norm().item(), leaf['Norm'], delta=1e-6 * max(1, leaf['Norm']), msg=name)
                self.assertEqual(value.double().max().item(), leaf['Max'], name)
                seen += 1
        self.assertGreater(seen, 20)

    @unittest.skipIf(torch is None, 'no torch in this Python')
    def test_a_dump_that_python_wrote_is_compared(self):
        a = self.dump('a', 'dump.task=tensor')
        theirs = self.dir / 'theirs/step0/proc123'
        (theirs / 'dump_tensor_data').mkdir(parents=True)
        document = json.loads((a / 'step0/rank0/dump.json').read_text())
        del document['npu_train']
        ours = a / 'step0/rank0/dump_tensor_data'
        for path in ours.iterdir():
            torch.save(torch.load(path, weights_only=True), theirs / 'dump_tensor_data' / path.name)
        (theirs / 'dump.json').write_text(json.dumps(document, indent=1))
        code, result = self.compare(self.dir / 'theirs', a, '--steps', '0')
        self.assertEqual(code, 0, result['summary'])
        layer = 'Module.head.Layer.forward.0.output.0.pt'
        torch.save(torch.load(ours / layer, weights_only=True) + 0.5, theirs / 'dump_tensor_data' / layer)
        code, result = self.compare(self.dir / 'theirs', a, '--steps', '0')
        self.assertEqual(code, 7)
        self.assertEqual(result['first_divergence']['layer'], 'head')

    def test_a_killed_run_leaves_a_readable_dump(self):
        a = self.dump('a', steps=('trainer.max_steps=30', 'checkpoint.enabled=false', 'output.dir=""'))
        process = self.start(self.config(precision='32-true'), 'trainer.max_steps=1000', 'trainer.max_epochs=1000', 'output.dir=""',
                             f'dump.dir={self.dir / "killed"}', 'dump.task=tensor')
        deadline = time.time() + 120
        while not (self.dir / 'killed/step3/rank0/dump.json').exists() and time.time() < deadline and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        steps = [int(p.name[4:]) for p in (self.dir / 'killed').iterdir()]
        self.assertGreaterEqual(max(steps), 3)
        for step in steps:
            self.data(self.dir / 'killed', step)  # raises an error unless the file is complete JSON
        code, result = self.compare(self.dir / 'killed', a, '--steps', '0,1,2')
        self.assertEqual(code, 0, result['summary'])

    def test_dumps_go_into_the_folder_of_the_run(self):
        code, _, error = train_app(self.config(precision='32-true'), 'trainer.max_steps=1', f'output.dir={self.dir / "out"}', 'dump={steps: [0]}')
        self.assertEqual(code, 0, error)
        self.assertEqual(len(list((self.dir / 'out').rglob('dump/step0/rank0/dump.json'))), 1)

    def test_bad_input_is_told(self):
        a = self.dump('a', 'dump.task=tensor')
        self.assertEqual(npu_tool('compare', a, self.dir / 'nothing')[0], 3)
        self.assertEqual(npu_tool('compare', a)[0], 2)
        self.assertEqual(npu_tool('compare', a, a, '--sample', '0')[0], 2)
        self.assertEqual(npu_tool('compare', a, a, '--tolerance', 'x')[0], 2)
        code, _, error = npu_tool('compare', a, a, '--steps', '77')
        self.assertEqual(code, 3)
        self.assertIn('no step', error)
        self.assertIn('A has 0, 1 of rank0', error)
        for words in (('--atol', 'nan'), ('--rtol', '-1'), ('--proportion', '0'), ('--rows', '-1'), ('--tolerance', 'fc=nan,1'),
                      ('--sample', '2')):
            self.assertEqual(npu_tool('compare', a, a, *words)[0], 2, words)
        file = self.dir / 'file'
        file.write_text('')
        self.assertFails(train_app(self.config(), f'dump.dir={file}', 'output.dir=""'), 2, 'dump.dir', 'is a file')
        broken = self.dump('broken', 'dump.task=tensor')
        path = broken / 'step0/rank0/dump.json'
        text = path.read_text()
        path.write_text(text[:len(text) // 2])
        code, result = self.compare(broken, a)
        self.assertTrue(any('truncated' in note for note in result['notes']))
        path.write_text(text.replace('"data_name": "Module', '"data_name": "../../../../etc/Module'))
        code, result = self.compare(broken, a)
        self.assertEqual((code, result['first_divergence']['cause']), (3, 'unreadable'))
        self.assertIn('leads out', json.dumps(result))
        path.write_text(text[:10])
        self.assertFails(npu_tool('compare', broken, a, '--steps', '0'), 3, f'{path} is truncated')
        path.unlink()
        (broken / 'step1/rank0/dump.json').unlink()
        self.assertFails(npu_tool('compare', broken, a), 3, f'{broken}: unknown kind of input', 'dump.json')
        self.assertFails(npu_tool('compare', self.dir, self.dir), 3, f'{self.dir}: unknown kind of input')
        for name, content in (('dump.steps', 'dump.steps=[x]'), ('dump.level', 'dump.level=L0')):
            code, _, error = train_app(self.config(), content)
            self.assertEqual(code, 2)
            self.assertIn(name, error)


    def test_runs_checkpoints_configurations_and_a_script_s_log(self):
        for name, lr in (('a', 0.002), ('b', 0.002), ('c', 0.02)):
            code, _, error = train_app(self.config(precision='32-true'), 'trainer.max_steps=12', 'trainer.log_every_n_steps=1', f'optimizer.lr={lr}',
                                       f'output={{dir: {self.dir / "out"}, name: {name}}}')
            self.assertEqual(code, 0, error)
        a, b, c = (self.dir / 'out' / name / 'version_0' for name in 'abc')
        code, result = self.compare(a, b)
        self.assertEqual(code, 0, result)
        self.assertEqual(result['environment'], [])
        self.assertEqual(result['history']['mean_relative'], 0)
        code, result = self.compare(a, c)
        self.assertIn('optimizer.lr', [d['path'] for d in result['config']])
        self.assertEqual(self.compare(a / 'checkpoints', b / 'checkpoints')[0], 0)
        code, result = self.compare(a / 'checkpoints', c / 'checkpoints')
        self.assertEqual(code, 7)
        self.assertTrue(result['first_divergence']['layer'])
        self.assertEqual(self.compare(a / 'config.yaml', c / 'config.yaml')[0], 7)
        log = self.dir / 'log.jsonl'
        rows = [line.split(',') for line in (a / 'metrics.csv').read_text().splitlines()]
        at = {name: i for i, name in enumerate(rows[0])}
        log.write_text(''.join(json.dumps({'iteration': int(r[at['step']]), 'my_loss': float(r[at['loss']])}) + '\n'
                               for r in rows[1:] if r[at['phase']] == 'train'))
        code, result = self.compare(log, a / 'metrics.csv', '--columns', 'loss=my_loss', '--columns-b', 'loss=loss')
        self.assertEqual(code, 0, result)
        self.assertFails(npu_tool('compare', log, a / 'config.yaml'), 2, 'is a loss history', 'is a configuration')

    def history(self, name, rows, header='step,loss,lr'):
        path = self.dir / f'{name}.csv'
        path.write_text(header + '\n' + ''.join(','.join(map(str, row)) + '\n' for row in rows))
        return path

    def test_checkpoints_of_different_strategies(self):
        """Ranks that divide the state write it in slices, which the comparison joins: every value is compared with that of one file."""
        config = self.config(precision='32-true')
        for strategy in ('ddp', 'zero1', 'zero3'):
            self.assertDone(train_app(config, '--nproc', '2', f'trainer.strategy={strategy}', 'trainer.max_steps=3', 'trainer.limit_val_batches=0',
                                      f'output.dir={self.dir}/{strategy}'))
        last = {strategy: run_dir(self.dir / strategy) / 'checkpoints/last' for strategy in ('ddp', 'zero1', 'zero3')}
        self.assertTrue(list(last['zero3'].glob('model.rank*.safetensors')), 'the parameters are in one file')
        counts = set()
        for other in last:
            code, result = self.compare(last['ddp'], last[other])
            self.assertEqual((code, result['complete']), (0, True), result['summary'] + str(result['notes']))
            items = [i for c in result['steps'][0]['calls'] for i in c['items']]
            self.assertEqual({i['kind'] for i in items}, {'tensor'})
            self.assertEqual({i['error'] for i in items}, {0})
            counts.add(len(items))
        self.assertEqual(len(counts), 1, counts)
        self.assertDone(train_app(config, '--nproc', '2', 'trainer.strategy=zero3', 'trainer.max_steps=3', 'trainer.limit_val_batches=0', 'optimizer.lr=0.003',
                                  f'output.dir={self.dir}/other'))
        code, result = self.compare(last['ddp'], run_dir(self.dir / 'other') / 'checkpoints/last')
        self.assertEqual(code, 7, result['summary'])

    def test_histories_that_prove_nothing_do_not_agree(self):
        rows = [(i, 2 - 0.01 * i, 0.1) for i in range(50)]
        good = self.history('good', rows)
        self.assertEqual(self.compare(good, good)[0], 0)
        broken = self.history('broken', [(i, 'nan' if i >= 30 else loss, lr) for i, loss, lr in rows])
        code, result = self.compare(broken, broken)
        self.assertEqual(code, 7)
        self.assertEqual(result['history']['first_unproven'], 30)
        self.assertIn('from step 30 on both losses are non-finite', npu_tool('compare', broken, broken)[1])
        faster = self.history('faster', [(i, loss, 0.2 if i >= 20 else lr) for i, loss, lr in rows])
        code, result = self.compare(faster, good)
        self.assertEqual((code, result['history']['first_lr']), (7, 20))
        self.assertEqual(self.compare(faster, good, '--lr-rtol', '0.6')[0], 0)
        later = self.history('later', [(i + 45, 2 - 0.01 * (i + 45), lr) for i, _, lr in rows])
        code, result = self.compare(later, good)
        self.assertEqual((code, result['complete']), (0, False))
        self.assertIn('5 of 95 steps are common', result['history']['sentences'][0])
        elsewhere = self.history('elsewhere', [(i + 100, loss, lr) for i, loss, lr in rows])
        self.assertFails(npu_tool('compare', elsewhere, good), 3, 'no common step', '--columns step=')

    def test_semicolons_and_tabs(self):
        rows = [(i, 2 - 0.01 * i, 0.1) for i in range(20)]
        good = self.history('good', rows)
        for name, separator, point in (('semicolons', ';', ','), ('points', ';', '.'), ('tabs', '\t', '.')):
            other = self.dir / f'{name}.csv'
            other.write_text(separator.join(('step', 'loss', 'lr')) + '\n' +
                             ''.join(separator.join(str(v).replace('.', point) for v in row) + '\n' for row in rows))
            code, result = self.compare(other, good)
            self.assertEqual((code, result['history']['steps'], result['history']['max_relative']), (0, 20, 0), name)

    def test_mistakes_between_runs_that_differ_in_rounding(self):
        right = self.dump('right', 'trainer.threads=2')
        for name, word, layer, likely in (('smooth', 'task.label_smoothing=0.01', 'loss', 'label_smoothing'),
                                          ('decay', 'optimizer.weight_decay=0.1', 'optimizer', 'different weight_decay: 0.1 and ')):
            code, result = self.compare(self.dump(name, 'trainer.threads=1', word), right)
            self.assertEqual((code, result['first_divergence']['layer']), (7, layer), result['summary'])
            self.assertIn(likely, result['first_divergence']['likely'][0])
        code, result = self.compare(self.dump('same', 'trainer.threads=1'), right)
        self.assertEqual(code, 0, result['summary'])

    def test_two_of_a_kind_are_needed(self):
        dump, log = self.dump('a'), self.history('log', [(1, 2, 0.1)])
        weights = self.dir / 'w.safetensors'
        weights.write_bytes(b'\x02\0\0\0\0\0\0\0{}')
        for a, b, words in ((dump, log, ('is a dump', 'is a loss history')), (weights, dump, ('is a checkpoint', 'is a dump')),
                            (log, weights, ('is a loss history', 'is a checkpoint'))):
            self.assertFails(npu_tool('compare', a, b), 2, str(a), str(b), *words)
        self.assertFails(npu_tool('compare', dump, self.dir), 3, str(self.dir), 'unknown kind')
        self.assertFails(npu_tool('compare', log, log, '--steps', '1'), 2, '--steps applies only to dumps')
        self.assertFails(npu_tool('compare', 'nowhere', log, '--reference', 'r'), 3, 'nowhere: no such file or folder')
        for words in (('--exact',), ('--atol', '1'), ('--rtol', '1'), ('--tolerance', 'a=1,1')):
            self.assertFails(npu_tool('compare', log, log, *words), 2, words[0], 'applies only to dumps and checkpoints', '--mean-rtol')

    def edited(self, dump, name, change):
        """A copy of a dump, its first step's dump.json changed."""
        copy = self.dir / name
        shutil.copytree(dump, copy)
        path = copy / 'step0/rank0/dump.json'
        document = json.loads(path.read_text())
        document['data'] = change(document['data']) or document['data']
        path.write_text(json.dumps(document))
        return copy

    def test_dumps_with_little_or_nothing_in_common(self):
        a = self.dump('a', steps=(*STEPS, 'trainer.max_steps=1'))

        def nan(data):
            def fill(value):
                if isinstance(value, list): return [fill(v) for v in value]
                if not isinstance(value, dict): return value
                return {k: float('nan') if k in ('Max', 'Min', 'Mean', 'Norm') else fill(v) for k, v in value.items()}
            return fill(data)
        broken = self.edited(a, 'nan', nan)
        code, result = self.compare(broken, broken)
        self.assertEqual((code, result['first_divergence']['cause']), (7, 'not_proven'), result['summary'])
        self.assertIn('Nothing is proven', result['summary'])
        self.assertTrue(any('not finite on both sides' in note and 'proves nothing' in note for note in result['notes']), result['notes'])
        self.assertEqual(self.compare(broken, a)[0], 7)

        def other_network(data):  # gives other names and other classes
            return {re.sub(r'^Module\.(.*)\.(\w+)\.(forward|backward|parameters_grad)', r'Module.other_\1.Other\2.\3', k): v
                    for k, v in data.items()}
        other = self.edited(a, 'other', other_network)
        self.assertFails(npu_tool('compare', other, a, '--strict-names'), 3, str(other), str(a), 'of the same network')
        some = self.edited(a, 'some', lambda data: other_network(data) | {k: v for k, v in data.items() if '.head.' in k})
        code, result = self.compare(some, a, '--strict-names')
        self.assertEqual((code, result['complete']), (7, False))  # layers with parameters that one side does not have
        self.assertEqual(result['first_divergence']['cause'], 'model')
        self.assertIn('not in the other', result['first_divergence']['sentence'])
        only_a = [call['a'] for call in result['steps'][0]['calls'] if not call['b']]
        self.assertIn('Module.other_embed.OtherLayer.forward.0', only_a)

    def test_a_dump_cut_anywhere_is_read_or_refused(self):
        a = self.dump('a', steps=(*STEPS, 'trainer.max_steps=1'))
        cut = self.dir / 'cut'
        shutil.copytree(a, cut)
        path = cut / 'step0/rank0/dump.json'
        text = path.read_bytes()
        codes = {0: 0, 3: 0, 7: 0}
        for at in sorted(random.Random(1).sample(range(len(text)), 50 if FULL else 12)):
            path.write_bytes(text[:at])
            code, out, error = npu_tool('compare', cut, a, '--json')
            self.assertIn(code, codes, f'cut at {at}: {error}')
            codes[code] += 1
            if code == 3: self.assertIn(str(cut), error)
            else: self.assertFalse(json.loads(out)['complete'])
        self.assertGreater(codes[0], 10 if FULL else 0)

    def hostile_files(self, good, marker):
        """Name and content of files that are not tensors; some would run a program where pickles are run."""
        def with_pickle(pickle):
            path = self.dir / 'hostile.zip'
            with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, 'w') as to:
                for entry in source.namelist():
                    to.writestr(entry, pickle if entry.endswith('data.pkl') else source.read(entry))
            return path.read_bytes()

        with zipfile.ZipFile(good) as source:
            own = next(source.read(entry) for entry in source.namelist() if entry.endswith('data.pkl'))
        command = f'touch {marker}'.encode()
        yield 'system', with_pickle(b"cos\nsystem\n(S'" + command + b"'\ntR.")
        yield 'eval', with_pickle(b"c__builtin__\neval\n(S'open(" + repr(str(marker)).replace("'", '"').encode() + b', "w")\'\ntR.')
        yield 'depth', with_pickle(b'\x80\x02' + b'(' * 60_000 + b't' * 60_000 + b'.')
        yield 'memo', with_pickle(b'\x80\x02]r\xff\xff\xff\xff.')
        yield 'length', with_pickle(b'\x80\x02X\xff\xff\xff\x7fabc.')
        yield 'endless', with_pickle(own[:-1])
        yield 'none', with_pickle(b'')
        yield 'truncated', good.read_bytes()[:-100]
        yield 'long', with_pickle(own[:-1] + b'N0' * (1 << 20) + b'.')
        path = self.dir / 'bomb.zip'
        with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as to:
            for entry in source.namelist():
                to.writestr(entry, bytes(1 << 28) if entry.endswith('/0') else source.read(entry))
        yield 'deflated', path.read_bytes()
        yield 'text', b'no tensor'

    def test_hostile_files_of_values_are_refused_and_nothing_runs(self):
        a = self.dump('a', 'dump.task=tensor', steps=(*STEPS, 'trainer.max_steps=1'))
        b = self.dir / 'b'
        shutil.copytree(a, b)
        name = 'Module.head.Layer.forward.0.output.0.pt'
        good, target = a / 'step0/rank0/dump_tensor_data' / name, b / 'step0/rank0/dump_tensor_data' / name
        marker = self.dir / 'was_here'
        for kind, content in self.hostile_files(good, marker):
            with self.subTest(kind):
                target.write_bytes(content)
                code, out, error = npu_tool('compare', b, a, '--json')
                self.assertEqual(code, 3, error)
                self.assertIn(name, error if not out else json.dumps([
                    item['message'] for call in json.loads(out)['steps'][0]['calls'] for item in call['items'] if item['verdict'] != 'agrees']))
                self.assertFalse(marker.exists())

    def test_no_way_leads_out_of_a_dump(self):
        a = self.dump('a', 'dump.task=tensor', steps=(*STEPS, 'trainer.max_steps=1'))
        b = self.dir / 'b'
        shutil.copytree(a, b)
        values = b / 'step0/rank0/dump_tensor_data'
        shutil.move(values, self.dir / 'values')
        values.symlink_to(self.dir / 'values')
        code, result = self.compare(b, a)
        self.assertEqual(code, 3)
        self.assertIn('leads out of the dump', json.dumps(result))
        values.unlink()
        shutil.move(self.dir / 'values', values)
        self.assertEqual(self.compare(b, a)[0], 0)
        shutil.move(b / 'step0', self.dir / 'outside')
        (b / 'step0').symlink_to(self.dir / 'outside')
        self.assertFails(npu_tool('compare', b, a), 3, str(b / 'step0'), 'leads out of the dump')
        absolute = self.edited(a, 'absolute', lambda data: json.loads(
            json.dumps(data).replace('"data_name": "Module.head', '"data_name": "/etc/Module.head')))
        code, result = self.compare(absolute, a)
        self.assertEqual(code, 3)
        self.assertIn('leads out', json.dumps(result))

    def test_an_older_layout_and_missing_steps(self):
        a = self.dump('a')
        old = self.dir / 'old'
        shutil.copytree(a, old)
        for step in (0, 1):
            (old / f'step{step}/rank0').rename(old / f'step{step}/proc4711')
            for file in ('construct.json', 'stack.json'):
                (old / f'step{step}/proc4711' / file).unlink()
        code, result = self.compare(old, a)
        self.assertEqual((code, result['complete'], len(result['steps'])), (0, True, 2))
        shutil.rmtree(old / 'step0')
        code, result = self.compare(old, a)
        self.assertEqual((code, result['complete'], len(result['steps'])), (0, False, 1))
        self.assertTrue(any('only B has step 0' in note for note in result['notes']))
        (old / 'step1').rename(old / 'step9')
        self.assertFails(npu_tool('compare', old, a), 3, 'no step is in both')


if __name__ == '__main__':
    main()
