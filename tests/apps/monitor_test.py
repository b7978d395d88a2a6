"""The section monitor: its file with every strategy, after a kill, in TensorBoard, in a report and in a comparison."""
import csv
import json
import math
import struct

from programs import FULL, REPEATABLE, ProgramTest, checkpoints, main, npu_tool, run_dir, train_app

DIFFERENT = 7
TINY = REPEATABLE + '''
device: cpu
model: {name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8}
data: {name: generated, train_size: 640, val_size: 20, batch_size: 8, num_workers: 0}
trainer: {max_steps: 9, threads: 1, gradient_clip_val: 0.5}
monitor: {every: 4}
'''


def rows(run):
    with (run / 'monitor.csv').open() as file: return list(csv.DictReader(file))


class Monitor(ProgramTest):
    def trained(self, name, *args, text=TINY):
        out = self.dir / name
        self.assertDone(train_app(self.config(text), f'output.dir={out}', *args, timeout=600))
        return run_dir(out)

    def test_every_strategy_has_the_bits_of_one_process(self):
        """Also with masters and a loss scale, whose skipped steps have rows."""
        for precision in ('32-true', '16-true') if FULL else ('32-true',):
            whole = self.trained(f'whole {precision}', f'precision={precision}', 'trainer.accumulate_grad_batches=3')
            self.assertEqual({r['attempt'] for r in rows(whole)}, {'0', '3', '7'})
            self.assertEqual(list(dict.fromkeys(r['what'] for r in rows(whole))), ['weights', 'activations', 'gradients', 'optimizer'])
            for strategy in ('ddp', 'zero1', 'zero2', 'zero3') if FULL else ('ddp', 'zero2', 'zero3'):
                with self.subTest(strategy, precision=precision):
                    part = self.trained(f'{strategy} {precision}', f'precision={precision}', '--nproc', 3, f'trainer.strategy={strategy}')
                    self.assertEqual((part / 'monitor.csv').read_text(), (whole / 'monitor.csv').read_text())

    def test_a_device_has_the_statistics_of_the_cpu(self):
        """They are read one step late, and agree up to the rounding of fp32, since sim_npu computes with other kernels."""
        cpu, npu = self.trained('cpu'), self.trained('npu', 'device=sim_npu')
        self.assertDone(npu_tool('compare', cpu / 'monitor.csv', npu / 'monitor.csv', '--mean-rtol', 0.001))
        self.assertEqual([(r['attempt'], r['step'], r['what'], r['name'], r['numel']) for r in rows(cpu)],
                         [(r['attempt'], r['step'], r['what'], r['name'], r['numel']) for r in rows(npu)])
        for a, b in zip(rows(cpu), rows(npu)):
            size = float(a['norm']) / math.sqrt(int(a['numel']))
            self.assertAlmostEqual(float(a['std']), float(b['std']), delta=1e-5 * size + 1e-3 * float(a['std']), msg=f'{a}\n{b}')

    def test_no_file_of_the_user_is_lost(self):
        """A run without a folder records nothing. A run into a folder that has the file of another run renames that file."""
        work = self.dir / 'work'
        work.mkdir()
        (work / 'monitor.csv').write_text('mine\n')
        for args in (['--fast-dev-run'], ['output.dir=""']):
            code, out, err = train_app(self.config(TINY), *args, cwd=work)
            self.assertEqual((code, (out + err).count('monitor: nothing is recorded')), (0, 1), out + err)
            self.assertEqual([p.name for p in work.iterdir()], ['monitor.csv'])
        first = self.trained('first', f'monitor.dir={work}')
        self.assertEqual((work / 'monitor.csv.damaged').read_text(), 'mine\n')
        own = (work / 'monitor.csv').read_text()
        self.trained('second', f'monitor.dir={work}')
        self.assertEqual(((work / 'monitor.csv.damaged-2').read_text(), (work / 'monitor.csv').read_text()), (own, own))
        self.assertIn('is not of this run', (first / 'train.log').read_text())

    def test_a_killed_run_continues_its_file_and_tensorboard_reads_it(self):
        steps = 420
        text = TINY.replace('train_size: 640', 'train_size: 4800').replace('max_steps: 9', f'max_steps: {steps}, max_epochs: 1000')
        text = text.replace('every: 4', 'every: 5, what: [gradients, optimizer], where: [head, class_token]')
        whole, parts = self.trained('whole', text=text), self.dir / 'parts'
        process = self.start(self.config(text), f'output.dir={parts}', 'checkpoint.every_n_train_steps=7')
        self.wait_for(process, lambda: any(m['global_step'] >= 20 for m in checkpoints(parts)), 'a checkpoint at step 20')
        process.kill()
        process.wait()
        self.assertLess(checkpoints(parts)[-1]['global_step'], steps)
        self.assertDone(train_app(self.config(text), f'output.dir={parts}', 'checkpoint.every_n_train_steps=7', '--resume', 'auto'))
        parts = run_dir(parts)
        self.assertEqual((parts / 'monitor.csv').read_text(), (whole / 'monitor.csv').read_text())
        self.assertEqual({r['name'].split('/')[-1] for r in rows(parts)}, {'class_token', 'heads.head.weight', 'heads.head.bias'})

        with self.subTest('TensorBoard'):
            try: from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
            except ImportError: self.skipTest('there is no tensorboard to read the events with')
            events = EventAccumulator(str(parts / 'monitor'), size_guidance={'scalars': 0})
            events.Reload()
            for tag, what, name in (('grad/class_token', 'gradients', 'class_token'), ('exp_avg/class_token', 'optimizer', 'exp_avg/class_token')):
                found = [(e.step, e.value) for e in events.Scalars('l2_norm/' + tag)]
                wanted = [(int(r['step']), struct.unpack('f', struct.pack('f', float(r['norm'])))[0]) for r in rows(parts) if (r['what'], r['name']) == (what, name)]
                self.assertEqual(found, wanted)

    def test_a_run_that_is_rolled_back_has_each_window_once(self):
        """Also if it diverges again and again: the file has the last try."""
        text = TINY.replace('adamw, lr: 0.002', 'sgd, lr: 50').replace('max_steps: 9, threads: 1, gradient_clip_val: 0.5',
                                                                      'max_steps: 60, threads: 1, on_divergence: rollback')
        code, out, err = train_app(self.config(text), f'output.dir={self.dir / "run"}', 'monitor.every=1', 'checkpoint.every_n_train_steps=2')
        run = run_dir(self.dir / 'run')
        self.assertEqual((code, (run / 'train.log').read_text().count('rolling back to')), (5, 2), out + err)
        windows = list(dict.fromkeys(int(r['attempt']) for r in rows(run)))
        self.assertEqual(len({(r['attempt'], r['what'], r['name']) for r in rows(run)}), len(rows(run)))
        self.assertEqual(windows, list(range(windows[-1] + 1)))
        self.assertDone(npu_tool('compare', run / 'monitor.csv', run / 'monitor.csv'))

    def test_the_report_names_the_first_gradient_outside_of_its_band(self):
        """Compares with the median and the scatter of logarithms in plain Python."""
        run = self.trained('run', 'monitor.every=1', 'monitor.band=1.5', 'trainer.max_steps=40')
        history, exits = {}, []
        median = lambda values: sorted(values)[len(values) // 2]
        for row in rows(run):
            if row['what'] != 'gradients': continue
            log, last = math.log(float(row['norm'])), history.setdefault(row['name'], [])[-20:]
            if len(last) >= 5:
                center = median(last)
                width = max(math.log(1.5), 3.5 * median([abs(v - center) for v in last]) / 0.6745)
                if abs(log - center) > width: exits.append((row['name'], int(row['step'])))
            history[row['name']].append(log)
        self.assertTrue(exits)
        document = json.loads(self.assertDone(npu_tool('report', run, '--json')))
        [found] = document['monitors']
        self.assertEqual((found['windows'], found['band_exits']), (40, len(exits)))
        self.assertEqual((found['first_exit']['name'], found['first_exit']['step']), exits[0])
        self.assertIn(f'the gradient of {exits[0][0]} has the norm', (run / 'train.log').read_text())
        tensors = {(t['what'], t['name']): t for t in document['monitored_tensors']}
        self.assertEqual(len(tensors), len({(r['what'], r['name']) for r in rows(run)}))
        head = [float(r['norm']) for r in rows(run) if (r['what'], r['name']) == ('weights', 'heads.head.weight')]
        found = tensors['weights', 'heads.head.weight']
        self.assertEqual((found['last'], found['lowest'], found['highest']), (head[-1], min(head), max(head)))
        page = self.dir / 'page.html'
        self.assertDone(npu_tool('report', run, '--html', page))
        for words in ('Norm of all gradients', 'Norms of activations in the last recorded window', 'Gradient norms that left their bands'):
            self.assertIn(words, page.read_text())
        header = (run / 'monitor.csv').read_text().splitlines()[0]
        for text, words in ((f'{header}\n' + 'x' * 1_000_000, 'no gradients recorded'),  # an incomplete last row is still being written
                            (f'{header}\n' + 'x' * 1_000_000 + '\n', 'monitor.csv, line 2: cannot be read'), ('a,b\n', 'its first line'), ('', 'its first line')):
            (run / 'monitor.csv').write_text(text)
            self.assertIn(words, self.assertDone(npu_tool('report', run)))
        (run / 'monitor.csv').write_text(f'{header}\n0,1,0,weights,fc,4,2,0.5,0,0,0,0,0,0\n')
        self.assertIn('monitor: 1 window recorded, and no gradients recorded', self.assertDone(npu_tool('report', run)))

    def test_two_runs_are_compared_and_the_first_layer_and_step_that_differ_are_named(self):
        a, same, b = self.trained('a'), self.trained('same'), self.trained('b', 'optimizer.weight_decay=0.5')
        document = json.loads(self.assertDone(npu_tool('compare', a, same, '--json')))
        self.assertIsNone(document['monitor']['first_unequal'])
        code, out, err = npu_tool('compare', a / 'monitor.csv', b / 'monitor.csv', '--json', '--mean-rtol', 1e-9)
        self.assertEqual(code, DIFFERENT, out + err)
        monitor = json.loads(out)['monitor']
        first = next((r, s) for r, s in zip(rows(a), rows(b)) if r != s)
        self.assertEqual((monitor['first_unequal']['what'], monitor['first_unequal']['name']), (first[0]['what'], first[0]['name']))
        self.assertEqual((monitor['first_unequal']['attempt'], monitor['first_unequal']['what']), (3, 'weights'))  # the first attempt after an update
        self.assertEqual(monitor['windows'], 3)
        table = self.dir / 'table.csv'
        self.assertDone(npu_tool('compare', a / 'monitor.csv', b / 'monitor.csv', '--csv', table))
        self.assertEqual(table.read_text().splitlines()[0], 'What,Name,Step,Norm A,Norm B,Relative,Mean relative')
        self.assertIn('the first that differs in any digit: weights of', self.assertDone(npu_tool('compare', a, b)))
        none = self.trained('none', 'monitor.where=[no_such_layer]')
        self.assertIn("monitor.where: 'no_such_layer' matches no name", (none / 'train.log').read_text())
        self.assertIn('monitors were not compared', self.assertDone(npu_tool('compare', a, none)))
        self.assertFails(npu_tool('compare', a / 'monitor.csv', b / 'metrics.csv'), 2, 'a monitor', 'a loss history')
        self.assertFails(npu_tool('compare', a / 'monitor.csv', b / 'monitor.csv', '--columns', 'step=x'), 2, '--columns applies only to')


if __name__ == '__main__': main()
