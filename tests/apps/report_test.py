"""npu_tool report: what runs wrote into their folders, as text, JSON and a page."""
import csv
import json
import math
import shutil
import statistics

from programs import ProgramTest, main, npu_tool, run_dir, train_app


class OfRuns(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.test = cls()
        ProgramTest.setUp(cls.test)
        cls.addClassCleanup(ProgramTest.tearDown, cls.test)
        config = cls.test.config(workers=0)
        cls.runs = []
        for name, lr in (('first', 0.002), ('second', 0.004), ('third', 0.002)):
            out = cls.test.dir / name
            cls.test.assertDone(train_app(config, '--detect-anomaly', f'output.dir={out}', 'output.name=small', f'optimizer.lr={lr}', f'seed={8 if name == "third" else 7}'))
            cls.runs.append(run_dir(out))

    def rows(self, run):
        with (run / 'metrics.csv').open() as file: return list(csv.DictReader(file))

    def report(self, *runs): return json.loads(self.assertDone(npu_tool('report', *runs, '--json')))

    def test_one_run(self):
        run = self.runs[0]
        document, rows, history = self.report(run), self.rows(run), json.loads((run / 'history.json').read_text())
        [result] = document['runs']
        self.assertEqual((result['run'], result['model'], result['data']), (str(run), 'vit_tiny_cifar10', 'generated'))
        self.assertEqual((result['epochs'], result['steps']), (3, history['global_step']))
        self.assertEqual(result['skipped_steps'], history['skipped_steps'])
        self.assertGreater(result['skipped_steps'], 0)
        self.assertEqual(result['end'], history['reason'])
        epochs = history['epochs']
        self.assertEqual(result['samples_per_second'], statistics.median(e['samples_per_second'] for e in epochs))
        self.assertAlmostEqual(result['data_wait'], sum(e['data_wait'] for e in epochs) / sum(e['seconds'] for e in epochs))
        self.assertEqual(result['peak_memory_bytes'], max(e['peak_memory_bytes'] for e in epochs))
        metrics = {m['metric']: m for m in document['metrics']}
        self.assertEqual(list(metrics), ['train/loss', 'val/loss', 'train/acc1', 'val/acc1', 'train/acc5', 'val/acc5'])
        for name, metric in metrics.items():
            phase, column = name.split('/')
            values = [(float(r[column]), int(r['step'])) for r in rows if r['phase'] == ('epoch' if phase == 'train' else phase)]
            self.assertEqual(metric['last'], values[-1][0])
            self.assertEqual((metric['lowest'], metric['lowest_step']), min(values, key=lambda v: v[0]))
            self.assertEqual((metric['highest'], metric['highest_step']), max(values, key=lambda v: v[0]))
        text = self.assertDone(npu_tool('report', run))
        for line in ('val/acc1', 'skipped steps', 'overflow: the last overflow that was explained is that of window '): self.assertIn(line, text)

    def test_several_runs(self):
        document = self.report(*self.runs)
        self.assertEqual([r['run'] for r in document['runs']], ['first/small/version_0', 'second/small/version_0', 'third/small/version_0'])
        self.assertEqual([r['lr'] for r in document['runs']], ['0.002', '0.004', '0.002'])
        differ = {d['path']: [d['run_0'], d['run_1'], d['run_2']] for d in document['configuration_differences']}
        self.assertEqual(differ.pop('optimizer.lr'), ['0.002', '0.004', '0.002'])
        self.assertEqual(differ.pop('seed'), ['7', '7', '8'])
        self.assertEqual(list(differ), ['output.dir'])
        self.assertEqual(document['environment_differences'], [])
        loss = {m['run']: m['last'] for m in document['metrics'] if m['metric'] == 'val/loss'}
        self.assertEqual(len(set(loss.values())), 3)
        text = self.assertDone(npu_tool('report', *self.runs))
        self.assertIn('second/small/version_0', text)

    def test_a_run_that_goes_on(self):
        """The rows of an unfinished run: no history, and a last row that is being written."""
        run = self.dir / 'run'
        shutil.copytree(self.runs[0], run)
        (run / 'history.json').unlink()
        lines = (run / 'metrics.csv').read_text().splitlines()[:4]
        (run / 'metrics.csv').write_text('\n'.join(lines) + '\n0,9,tra')
        (run / 'diverged').mkdir()
        self.assertIn('the run diverged', self.report(run)['runs'][0]['end'])
        (run / 'diverged').rmdir()
        [result] = self.report(run)['runs']
        self.assertEqual((result['epochs'], result['end']), (0, 'none recorded: the run has not ended, or was killed'))
        self.assertEqual(result['steps'], int(lines[-1].split(',')[1]))
        self.assertNotIn('samples_per_second', result)

    def test_losses_that_are_not_finite_and_own_columns(self):
        run = self.dir / 'run'
        shutil.copytree(self.runs[0], run)
        lines = (run / 'metrics.csv').read_text().splitlines()
        lines[0] += ',own/value'
        lines[1:] = [line + ',' for line in lines[1:]]
        commas = ',' * (lines[0].count(',') - 3)
        lines += [f'2,59,val,nan{commas}', f'2,60,log,{commas}5', f'2,61,log,{commas}4']
        (run / 'metrics.csv').write_text('\n'.join(lines) + '\n')
        metrics = {m['metric']: m for m in self.report(run)['metrics']}
        self.assertTrue(math.isnan(float(metrics['val/loss']['last'])))
        self.assertNotEqual(metrics['val/loss']['highest_step'], 59)
        own = metrics['own/value']
        self.assertEqual([own[k] for k in ('last', 'lowest', 'lowest_step', 'highest', 'highest_step')], [4, 4, 61, 5, 60])

    def test_what_is_refused(self):
        run = self.runs[0]
        self.assertFails(npu_tool('report', self.dir / 'none'), 3, 'no such folder')
        self.assertFails(npu_tool('report', run, run), 2, 'given twice')
        self.assertFails(npu_tool('report', run, f'{run}/../version_0/'), 2, 'given twice')
        self.assertFails(npu_tool('report', run.parent), 3, 'it has no config.yaml', "a run's folder is")
        self.assertFails(npu_tool('report'), 2)
        broken = self.dir / 'broken'
        for name, content, words in (('metrics.csv', 'epoch,step,phase,loss,lr\n0,1\n', 'metrics.csv'), ('metrics.csv', '', 'metrics.csv'),
                                     ('metrics.csv', 'a,b\n1,2\n', "'epoch'"), ('history.json', '{"epochs": 3}', 'history.json'),
                                     ('history.json', '{', 'history.json'), ('overflow_report.json', '{}', 'overflow_report.json'),
                                     ('environment.json', '[]', 'environment.json'), ('config.yaml', 'a: [', 'config.yaml')):
            shutil.rmtree(broken, ignore_errors=True)
            shutil.copytree(run, broken)
            (broken / name).write_text(content)
            code, out, err = npu_tool('report', broken)
            self.assertIn(code, (2, 3), f'{name} {content}: {out}')
            self.assertIn(words, err)


if __name__ == '__main__': main()
