"""npu_tool baseline, checklist and bench, and trainer.profiler, as processes."""
import csv
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import browser
from programs import BIN, SOURCE, ProgramTest, main, npu_tool, run_dir, train_app
from torch_npu_wheel import PACKAGES, PYTHON, needs_cann, needs_wheel, of_user

USAGE, DATA, DISK, FAILED = 2, 3, 6, 7
SHORT = ('trainer.max_epochs=1', 'precision=32-true')

# Program that prints the aclnn functions that each operator launches.
LAUNCHES = '''
import ctypes, json
import torch, torch_npu
import torch.nn.functional as F
calls = ctypes.CDLL('libascendcl.so').sim_cann_calls
calls.restype = ctypes.c_char_p
def count():
    torch.npu.synchronize()
    return {line.split()[0]: int(line.split()[1]) for line in calls().decode().splitlines() if line.startswith('aclnn')}
def launched(run):
    before = count()
    out = run()
    return out, [name for name, n in count().items() if n > before.get(name, 0)]
def new(*sizes, dtype=None): return torch.randn(*sizes, device='npu', dtype=dtype, requires_grad=True)
x, w, a, b, half = new(2, 3, 8, 8), new(4, 3, 3, 3), new(4, 8), new(8, 8), new(1, 2, 4, 16, dtype=torch.float16)
labels, found = torch.zeros(4, dtype=torch.long, device='npu'), {}
for name, run, backward in (
        ('conv2d', lambda: F.conv2d(x, w), 'convolution_backward'), ('linear', lambda: F.linear(a, b), 'mm'), ('bmm', lambda: torch.bmm(a[None], b[None]), None),
        ('relu', lambda: F.relu(a), 'threshold_backward'), ('softmax', lambda: F.softmax(a, -1), '_softmax_backward_data'),
        ('layer_norm', lambda: F.layer_norm(a, (8,)), 'native_layer_norm_backward'),
        ('batch_norm', lambda: F.batch_norm(x, torch.zeros(3, device='npu'), torch.ones(3, device='npu'), training=True), 'native_batch_norm_backward'),
        ('cross_entropy_loss', lambda: F.cross_entropy(a, labels), 'nll_loss_backward'), ('max_pool2d', lambda: F.max_pool2d(x, 2), 'max_pool2d_with_indices_backward'),
        ('scaled_dot_product_attention', lambda: F.scaled_dot_product_attention(half, half, half), '_scaled_dot_product_flash_attention_for_cpu_backward'),
        ('add', lambda: a + a, None), ('sub', lambda: a - a, None), ('mul', lambda: a * a, None), ('div', lambda: a / a, None), ('sum', lambda: a.sum(), None),
        ('mean', lambda: a.mean(1), None), ('to', lambda: a.to(torch.float16), None), ('cat', lambda: torch.cat([a, a]), None), ('dropout', lambda: F.dropout(a, 0.5), None)):
    out, functions = launched(run)
    if name != 'relu': found[name] = functions
    if backward: found[backward] = launched(lambda: out.backward(torch.ones_like(out)))[1]
p = new(4)
p.grad = torch.ones_like(p)
for name, optimizer in (('_fused_adamw_', torch.optim.AdamW([p], fused=True)), ('_fused_sgd_', torch.optim.SGD([p], 0.1, momentum=0.9, fused=True))):
    found[name] = launched(optimizer.step)[1]
print(json.dumps(found))
'''


class Measure(ProgramTest):
    def json(self, *args, code=0):
        result = npu_tool(*args, '--json')
        self.assertEqual(result[0], code, result[1] + result[2])
        return json.loads(result[1])

    def check_pages(self, *pages):
        with self.subTest('in a browser'):
            if browser.find() is None: self.skipTest('no chromium or google-chrome on this machine: the page was not opened')
            self.check_in_browser(*pages)

    def check_in_browser(self, *pages):
        b = browser.shared()
        for page in pages:
            for width in (1280, 800, 400):
                b.open(page, width=width)
                self.assertLessEqual(b.run('document.documentElement.scrollWidth'), width, page)
        self.assertEqual(b.problems, [])

    def test_baseline(self):
        config, file, page = self.config(), self.dir / 'b.json', self.dir / 'b.html'
        out = self.assertDone(npu_tool('baseline', config, *SHORT, f'output.dir={self.dir}/a', '--out', file))
        for word in ('20 steps of 16', 'val/acc1', 'samples/s', str(file)): self.assertIn(word, out)
        recorded = json.loads(file.read_text())
        self.assertEqual(len(recorded['loss']), 20)
        self.assertGreater(recorded['peak_memory_bytes'], 0)
        self.assertEqual(recorded['peak_memory_of'], 'process')
        self.assertIn('peak memory of the process', out)
        self.assertIn('libtorch', recorded['environment'])
        # A repetition has equal losses. Its speed is not tested.
        again = self.json('baseline', config, *SHORT, f'output.dir={self.dir}/b', '--against', file, '--least-speed', '0.01', '--html', page)
        self.assertTrue(again['accuracy_passed'])
        self.assertEqual(again['mean_relative_loss'], 0)
        self.assertTrue((run_dir(self.dir / 'b') / 'baseline.json').exists())
        self.check_pages(page)
        # With another learning rate, it is another training run.
        worse = npu_tool('baseline', config, *SHORT, 'optimizer.lr=1', 'output.dir=""', '--against', file, '--least-speed', '0.01')
        self.assertEqual(worse[0], FAILED, worse[2])
        for word in ('accuracy: FAILED', 'optimizer.lr'): self.assertIn(word, worse[1])
        self.assertEqual(npu_tool('baseline', config, *SHORT, 'output.dir=""', '--against', file, '--least-speed', '1000')[0], FAILED)

    def test_baseline_mistakes(self):
        config = self.config()
        self.assertFails(npu_tool('baseline'), USAGE, 'no configuration')
        self.assertFails(npu_tool('baseline', config, '--against', self.dir / 'none.json'), DATA, 'none.json')
        nowhere = npu_tool('baseline', config, '--out', self.dir / 'none' / 'b.json')
        self.assertFails(nowhere, DISK, 'b.json')
        self.assertNotIn('epoch', nowhere[2])  # the error comes before the training
        (self.dir / 'x.json').write_text('{"loss": [1]}')
        self.assertFails(npu_tool('baseline', config, '--against', self.dir / 'x.json'), DATA, 'not a baseline', '--out')
        self.assertFails(npu_tool('baseline', config, '--least-speed', '2'), USAGE, '--against')
        self.assertFails(npu_tool('baseline', config, *SHORT, 'trainer.max_steps=2', 'output.dir=""', '--json'), USAGE, 'warm-up')
        self.assertFails(npu_tool('baseline', config, *SHORT, 'output.dir=""'), USAGE, '--out')
        self.assertFails(npu_tool('baseline', config, *SHORT, 'trainer.fast_dev_run=true', '--json'), USAGE, 'trainer.fast_dev_run=false')
        # Errors are reported before a training run that would never end.
        file, endless = self.dir / 'b.json', (*SHORT[1:], 'trainer.max_epochs=1000000', 'output.dir=""', '--against', self.dir / 'b.json')
        self.assertDone(npu_tool('baseline', config, *SHORT, 'output.dir=""', '--out', file))
        for option in ('--accuracy-drop', '--loss-rtol', '--least-speed'):
            for bad in ('nan', '-1'):
                self.assertFails(npu_tool('baseline', config, *endless, f'{option}={bad}'), USAGE, option[2:])
        self.assertFails(npu_tool('baseline', config, *endless, 'data.batch_size=8'), USAGE, 'not the same training')

    def test_checklist(self):
        page, recorded, faster = (self.dir / name for name in ('c.html', 'recorded.json', 'faster.json'))
        self.json('baseline', self.config(), *SHORT, 'trainer.max_steps=10', 'output.dir=""', '--out', recorded)
        twice = json.loads(recorded.read_text())
        twice['step_seconds'] = [seconds / 2 for seconds in twice['step_seconds']]
        faster.write_text(json.dumps(twice))
        code, out, err = npu_tool('checklist', self.config(), 'precision=32-true', '--device', 'cpu', '--html', page, '--json',
                                  '--reference', recorded, '--baseline', faster)
        states = {item['item']: item['state'] for item in json.loads(out)['items']}
        evidence = {item['item']: item['evidence'] for item in json.loads(out)['items']}
        self.assertEqual(evidence['the speed is sufficient'], "2 times the reference's")
        for item in ('losses and accuracy follow the reference', 'the speed is sufficient'): self.assertEqual(states[item], 'done', evidence[item])
        # How long steps wait for data depends on this machine, and this item decides the exit code.
        waits = states.pop('data loading keeps up with the device')
        self.assertIn(waits, ('done', 'not done'))
        self.assertEqual(code, 0 if waits == 'done' else FAILED, out + err)
        self.assertEqual(set(states.values()), {'done', 'not checked', 'by hand'})
        self.assertEqual(states['a run resumes bit for bit'], 'done')
        self.check_pages(page)
        config = self.config()
        missing = npu_tool('checklist', config, 'precision=32-true', '--device', 'cuda:9')
        self.assertEqual(missing[0], FAILED, missing[2])
        self.assertIn('not done', missing[1])
        self.assertIn(f'nsys profile --trace=cuda,nvtx --output=npu_train train_app {config} precision=32-true device=cuda:9', missing[1])
        self.assertFails(npu_tool('checklist', self.config(), '--device', 'tpu'), USAGE, 'tpu')
        self.assertFails(npu_tool('checklist', self.config(), '--device', 'cpu', '--torch', '1.8'), USAGE, "'1.8'", '2.11 to 2.13')

    def test_bench_reports_and_compares(self):
        a, table, page = self.dir / 'a.json', self.dir / 'a.csv', self.dir / 'a.html'
        what = ('--what', 'step,infer,batch,loader', '--batch', '2', '--steps', '8', '--warmup', '1', '--infer-steps', '3', '--sweep-steps', '2')
        document = self.json('bench', self.config(precision='32-true'), *what, '--out', a, '--csv', table, '--html', page)
        self.assertEqual(document['batch'], 2)
        self.assertGreater(document['gemm_flops'], 0)
        self.assertEqual({row['section'] for row in document['rows']} - {'power'}, {'step', 'phases', 'infer', 'batch', 'loader'})
        self.assertTrue(any('were omitted' in note for note in document['notes']), document['notes'])
        self.assertFalse([row for row in document['rows'] if row.get('failure') and row['section'] != 'power'])
        with open(table, newline='') as rows: self.assertIn(['section', 'name', 'number', 'value'], list(csv.reader(rows)))
        self.check_pages(page)
        # A comparison with itself finds no difference.
        same = self.json('bench', '--compare', a, a)
        self.assertTrue(same['passed'])
        verdicts = {row['section']: row['verdict'] for row in same['rows']}
        self.assertEqual(verdicts['step'], 'no difference beyond the scatter')
        self.assertEqual(verdicts['infer'], 'too few measurements for a verdict')  # it has only three measurements
        slow = json.loads(a.read_text())
        for row in slow['rows']: row['seconds'] = [100 * s for s in row.get('seconds', [])]
        (self.dir / 'slow.json').write_text(json.dumps(slow))
        self.assertEqual(npu_tool('bench', '--compare', self.dir / 'slow.json', a)[0], FAILED)
        self.assertFails(npu_tool('bench', '--compare', a, self.dir / 'none.json'), DATA, 'none.json')
        self.assertFails(npu_tool('bench', '--what', 'step'), USAGE, 'no model')
        self.assertFails(npu_tool('bench', '--compare', a, a, '--html', page), USAGE, '--html')

    def test_bench_sweeps_inference_and_sets_cards_next_to_each_other(self):
        a, page, cards = self.dir / 'a.json', self.dir / 'a.html', self.dir / 'cards.html'
        what = ('--what', 'step,infer-batch,loader', '--batch', '2', '--steps', '3', '--warmup', '1', '--sweep-steps', '2', '--no-machine', '--no-phases')
        document = self.json('bench', self.config(precision='32-true'), *what, '--out', a, '--html', page)
        sweep = [row for row in document['rows'] if row['section'] == 'infer-batch']
        self.assertEqual([row['batch'] for row in sweep], [1, 2, 4, 8, 16, 32, 64])
        for row in sweep: self.assertAlmostEqual(row['latency_ms_p50'] * row['samples_per_s'] / 1e3, row['batch'], places=6)  # both are from one median
        for row in document['rows']:
            if row['section'] == 'loader' and not row.get('failure'): self.assertAlmostEqual(row['ms_per_batch'] * row['samples_per_s'] / 1e3, row['batch'], places=6)
        text = page.read_text()
        for title in ('Inference: throughput by batch', 'Inference: latency by batch'): self.assertIn(title, text)
        failing = self.json('bench', self.config(precision='32-true'), 'device=sim_npu', 'sim_npu.hbm=12MiB', 'model.dim=64', 'model.patch_size=2', '--what', 'infer-batch', '--sweep-steps', '1', '--warmup', '1', '--no-machine')
        self.assertEqual(len([r for r in failing['rows'] if r['section'] == 'infer-batch']), 7)
        self.assertIn('out of memory', {row.get('failure') for row in failing['rows']})
        (self.dir / 'mine.csv').write_text('device,batch,samples_per_s\nA100,32,200\n')
        found = self.json('bench', '--elsewhere')['cards']
        self.assertEqual((found[1]['device'], found[1]['cann'], found[1]['relative_percent']), ('910B', '7.0.RC1.alpha005', 108.8))
        out = self.assertDone(npu_tool('bench', '--cards', a, '--figures', self.dir / 'mine.csv', '--elsewhere', '--html', cards))
        for word in ('cpu', 'A100', 'V100', '910B', 'from elsewhere', '100 %', 'different batch', '0.345'): self.assertIn(word, out)
        self.check_pages(cards)
        self.assertFails(npu_tool('bench', '--elsewhere', '--steps', '3'), USAGE, '--steps')
        self.assertFails(npu_tool('bench', '--cards', self.dir / 'none.json'), DATA, 'none.json')
        self.assertFails(npu_tool('bench', '--what', 'infer-bach', '--model', 'resnet18'), USAGE, "did you mean 'infer-batch'?")

    def test_bench_takes_its_words(self):
        config = self.config(precision='32-true')
        quick = ('--steps', '2', '--warmup', '1', '--no-machine', '--no-phases', '--batch', '2')
        self.assertIn('step', self.assertDone(npu_tool('bench', '--what', 'step', config, *quick)))  # a configuration file is not a section
        for wrong, word in ((('--image', '-5'), '-5'), (('--threads', '0'), '0'), (('--history', 'x.json'), '--html'),
                            (('--fuse',), '--what infer'), (('--activations', '--what', 'infer'), '--what step'),
                            (('--out', 'x', '--csv', './x'), 'two outputs'), (('--compare', 'a', 'b', '--steps', '3'), '--steps')):
            with self.subTest(wrong): self.assertFails(npu_tool('bench', *(() if '--compare' in wrong else (config,)), *wrong), USAGE, word)

    def test_bench_that_is_interrupted_tells_what_is_done(self):
        out = self.dir / 'part.json'
        words = [BIN / 'npu_tool', 'bench', self.config(precision='32-true'), '--what', 'step', '--steps', '1000000000', '--out', out]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
            caught = re.compile(r'^SigCgt:\s*([0-9a-f]+)', re.M)
            status = pathlib.Path(f'/proc/{running.pid}/status')
            while not int(caught.search(status.read_text())[1], 16) & 1 << (signal.SIGINT - 1): time.sleep(0.05)
            running.send_signal(signal.SIGINT)
            self.assertEqual(running.wait(), 128 + signal.SIGINT)
        self.assertIn('interrupted in section step', json.loads(out.read_text())['notes'][-1])

    def test_bench_marks_regressions_of_its_history(self):
        config, steps = self.config(precision='32-true'), ('--what', 'step,train', '--batch', '2', '--steps', '8', '--warmup', '1', '--no-machine')
        before, page = self.dir / 'before.json', self.dir / 'now.html'
        self.json('bench', config, *steps, '--out', before)
        fast = json.loads(before.read_text())
        for row in fast['rows']: row['seconds'] = [s / 100 for s in row.get('seconds', [])]
        before.write_text(json.dumps(fast))
        other = self.dir / 'other.json'
        other.write_text(json.dumps(fast | {'model': 'another'}))
        out = self.assertDone(npu_tool('bench', config, *steps, '--history', other, before, '--html', page))
        self.assertIn('share_of_backward', out)
        text = page.read_text()
        for word in ('History of step, batch 2', 'History of train', 'slower: a regression', '1 of 2 earlier reports', 'Phases of a step'):
            self.assertIn(word, text)
        self.check_pages(page)
        self.assertFails(npu_tool('bench', config, *steps, '--history', self.dir / 'none.json', '--html', page), DATA, 'none.json')

    def test_bench_tells_how_costs_grow(self):
        config, page, table = self.config(precision='32-true'), self.dir / 'g.html', self.dir / 'g.csv'
        sizes = ('--scale-batch', '1,2', '--scale-depth', '1,2', '--scale-image', '32,64', '--scale-threads', '1,2', '--scale-workers', '1,2',
                 '--scale-layers', '4,8', '--scale-steps', '2')
        document = self.json('bench', config, '--what', 'scaling', *sizes, '--no-machine', '--html', page, '--csv', table)
        grown = {row['section'] for row in document['rows'] if row['name'] == 'growth'}
        self.assertEqual(len([note for note in document['notes'] if note.startswith('scaling: ')]), 8)
        self.assertLessEqual({'scaling batch', 'scaling memory', 'scaling threads', 'scaling workers', 'scaling dump', 'scaling compare'}, grown)
        self.assertIn('scaling dump,growth,exponent', table.read_text())
        self.check_pages(page)
        self.assertFails(npu_tool('bench', config, '--what', 'scaling', '--scale-batch', '0'), USAGE, '--scale-batch')

    def test_bench_refuses_equal_programs(self):
        document = self.json('bench', self.config(precision='32-true'), '--what', 'null', '--batch', '1', '--null-trials', '2', '--pairs', '6', '--no-machine')
        self.assertEqual(document['rows'][-1]['trials'], 2)
        self.assertIn('of 2 trials', document['notes'][0])
        self.assertFails(npu_tool('bench', self.config(), '--what', 'null', '--pairs', '5'), USAGE, 'at least 6')

    def test_profiler(self):
        self.assertDone(train_app(self.config(), *SHORT, 'trainer.profiler=chrome', f'output.dir={self.dir}/out'))
        folder = run_dir(self.dir / 'out') / 'profile'
        trace = json.loads((folder / 'trace.json').read_text())
        self.assertGreater(len([e for e in trace['traceEvents'] if e['ph'] == 'X']), 100)
        self.assertEqual(json.loads((folder / 'profile.json').read_text())['windows'], 16)  # 20 less the first and three traced
        self.check_pages(folder / 'profile.html')
        self.assertFails(train_app(self.config(), 'trainer.profiler=torch'), USAGE, 'none', 'simple', 'chrome')

    @needs_wheel
    def test_the_tables_of_msprof_next_to_the_profile(self):
        """Tables with the columns that torch_npu's own reader of msprof expects."""
        sys.path.insert(0, str(PACKAGES[1] / 'profiler/analysis/prof_common_func'))
        self.addCleanup(sys.path.pop, 0)
        from _csv_headers import CsvHeaders
        columns = CsvHeaders.OP_SUMMARY_SHOW_HEADERS + CsvHeaders.OP_SUMMARY_ADDITIONAL_HEADERS
        self.assertDone(train_app(self.config(precision='32-true'), *SHORT, 'trainer.profiler=chrome', 'trainer.max_steps=2', f'output.dir={self.dir}/out'))
        run, prof = run_dir(self.dir / 'out'), self.dir / 'PROF_1/mindstudio_profiler_output'
        prof.mkdir(parents=True)
        with open(prof / 'op_summary_20260306151015.csv', 'w', newline='') as file:
            table = csv.DictWriter(file, columns)
            table.writeheader()
            for kernel, function, us in (('MatMulV3', 'aclnnAddmm', 300), ('MatMulV3', 'aclnnMm', 100), ('ApplyAdamWV2', 'aclnnApplyAdamWV2', 100)):
                table.writerow({'Device_id': 0, 'Op Name': f'{function}_{kernel}_{kernel}', 'OP Type': kernel, 'Task Type': 'AI_CORE', 'Task Duration(us)': us})
        found = self.json('profile', run, '--msprof', self.dir / 'PROF_1')
        by_kernel = {kernel: row for row in found['rows'] for kernel in row['kernels']}
        self.assertIn('linear', by_kernel['MatMulV3']['operators'])
        self.assertEqual(by_kernel['MatMulV3']['launches'], 2)
        self.assertAlmostEqual(by_kernel['MatMulV3']['device_share'], 0.8)
        self.assertEqual(by_kernel['ApplyAdamWV2']['operators'], ['_fused_adamw_'])
        text = self.assertDone(npu_tool('profile', run / 'profile/profile.json', '--msprof', prof, '--rows', '2', '--html', self.dir / 'page.html'))
        self.assertIn('0.5 ms on the device (msprof, 1 file)', text)
        self.assertIn('MatMulV3', (self.dir / 'page.html').read_text())
        self.assertFails(npu_tool('profile', self.dir, '--msprof', prof), USAGE, 'there is no profile.json')
        self.assertFails(npu_tool('profile', run, '--msprof', self.dir / 'out'), USAGE, 'there is no op_summary_*.csv')

    @needs_cann
    def test_operators_launch_the_kernels_of_the_table(self):
        """The families of src/tools/analyze/facts/kernels.tsv against the functions that the real torch_npu launches for each operator, on sim_cann."""
        rows = [line.split('\t') for line in (SOURCE / 'src/tools/analyze/facts/kernels.tsv').read_text().splitlines() if not line.startswith('#')][1:]
        kernels = {row[0]: row[2].split() for row in rows}
        family = {name: row[0] for row in rows for name in row[1].split()}
        done = subprocess.run([PYTHON, '-c', LAUNCHES], env=of_user(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for name, functions in json.loads(done.stdout.splitlines()[-1]).items():
            plain = {re.sub(r'V\d+$', '', re.sub('^aclnn(Inplace)?', '', f)) for f in functions}
            self.assertTrue(plain & set(kernels[family[name]]), (name, functions))

    def test_chrome_on_a_device_and_of_one_step(self):
        for steps, device in ((1, 'cpu'), (2, 'sim_npu')):
            self.assertDone(train_app(self.config(), *SHORT, 'trainer.profiler=chrome', f'trainer.max_steps={steps}', f'device={device}',
                                      'sim_npu.unsupported_ops=ignore', f'output.dir={self.dir}/{device}'))
            profile = json.loads((run_dir(self.dir / device) / 'profile' / 'profile.json').read_text())
            self.assertLessEqual({'forward', 'backward', 'optimizer'}, {row['phase'] for row in profile['operators']}, device)
            self.assertTrue(profile['layers'], device)


if __name__ == '__main__': main()
