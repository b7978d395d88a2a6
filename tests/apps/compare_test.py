#!/usr/bin/env python3
"""npu_tool compare over dumps of real runs: exit status, files that it writes, dumps of killed runs and of Python, bad input."""
import json
import signal
import time
import unittest

import browser
from html_page_test import check_page
from programs import ProgramTest, main, npu_tool, train_app

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
        self.assertIn(code, (0, 7), error)
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
        self.assertIn('beyond tolerance', out.splitlines()[-1])

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
        code, result = self.compare(only, a)
        self.assertIn('do not have the same', result['summary'])

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
        if browser.find() is None:
            self.skipTest('no chromium or google-chrome on this machine: the page was not opened')
        with browser.Browser() as tab:
            check_page(self, tab, page)
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
            self.data(self.dir / 'killed', step)  # whole JSON, each of them
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
        broken = self.dump('broken', 'dump.task=tensor')
        path = broken / 'step0/rank0/dump.json'
        text = path.read_text()
        path.write_text(text[:len(text) // 2])
        code, result = self.compare(broken, a)
        self.assertTrue(any('cut short' in note for note in result['notes']))
        path.write_text(text.replace('"data_name": "Module', '"data_name": "../../../../etc/Module'))
        code, result = self.compare(broken, a)
        self.assertEqual(code, 7)
        self.assertIn('leads out', json.dumps(result))
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
        self.assertEqual(npu_tool('compare', log, a / 'config.yaml')[0], 2)


if __name__ == '__main__':
    main()
