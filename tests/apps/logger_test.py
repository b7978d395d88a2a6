"""output.logger: the same values in metrics.csv, in TensorBoard and in MLflow, read by the readers of these programs. Skipped without
MLflow: its Python is NPU_TRAIN_MLFLOW_PYTHON, .venv/mlflow (scripts/setup --dev), or this one."""
import csv
import importlib.util
import json
import math
import os
import pathlib
import signal
import unittest

from peers import Peer, python_of
from programs import BIN, ProgramTest, main, run, run_dir, train_app

# Its newer versions read file stores only on request, and some report their use to a server.
ENV = {**os.environ, 'MLFLOW_ALLOW_FILE_STORE': 'true', 'MLFLOW_DISABLE_TELEMETRY': 'true'}
PEER = Peer(python_of('mlflow'), env=ENV, mlflow='from mlflow.tracking import MlflowClient')
SCRIPT = pathlib.Path(__file__).with_name('python_mlflow.py')


def rows_of(folder):
    with (folder / 'metrics.csv').open() as file: return list(csv.DictReader(file))


def curves(folder):
    """{train/loss: [[step, repr of the value]]} of metrics.csv."""
    out = {}
    for row in rows_of(folder):
        for name, text in row.items():
            if name in ('epoch', 'step', 'phase') or text == '': continue
            out.setdefault(name if row['phase'] == 'log' else f'{row["phase"]}/{name}', []).append([int(row['step']), repr(float(text))])
    return out


def flat(settings, path=''):
    for name, value in settings.items():
        if isinstance(value, dict) and value: yield from flat(value, f'{path}{name}.')
        else: yield path + name, value


@unittest.skipUnless(PEER.has('mlflow'), 'MLflow is not installed (pip install mlflow-skinny; NPU_TRAIN_MLFLOW_PYTHON)')
class InMlflow(ProgramTest):
    def loggers(self, **options):
        text = ', '.join(f'{key}: "{value}"' for key, value in options.items())
        return f'output.logger=[csv, tensorboard, {{name: mlflow, dir: "{self.dir}/ml runs"{", " + text if text else ""}}}]'

    def found(self):
        code, out, err = PEER.run(SCRIPT, self.dir / 'ml runs')
        self.assertEqual(code, 0, out + err)
        return json.loads(out.splitlines()[-1])

    def assertSameCurves(self, logged, folder):
        self.assertEqual({name: [point[:2] for point in points] for name, points in logged['metrics'].items()}, curves(folder))

    def test_mlflow_reads_runs_that_end_in_each_way(self):
        common = (self.config(precision='32-true'), 'trainer.max_epochs=2', f'output.dir={self.dir}/out')
        self.assertDone(train_app(*common, self.loggers(), 'output.name=good'))
        self.assertFails(train_app(*common, self.loggers(experiment='other \u00e4', run_name='too fast'), 'output.name=bad', 'optimizer={name: sgd, lr: 1.0e+10}'), 5, 'diverged')
        found = self.found()
        self.assertEqual(set(found), {'Default', 'good', 'other \u00e4'})
        [good], [bad] = found['good'], found['other \u00e4']
        folder = self.dir / 'out/good/version_0'
        self.assertEqual((good['name'], good['status'], good['artifacts']), ('version_0', 'FINISHED', ['config.yaml']))
        self.assertLess(good['start'], good['end'])
        self.assertEqual((bad['name'], bad['status']), ('too fast', 'FAILED'))
        self.assertSameCurves(good, folder)
        self.assertIn('val/acc1', good['metrics'])
        self.assertSameCurves(bad, self.dir / 'out/bad/version_0')
        for points in good['metrics'].values():
            self.assertEqual([time for *_, time in points], sorted(time for *_, time in points))
            self.assertTrue(all(good['start'] <= time <= good['end'] for *_, time in points))
        self.assertEqual((good['params']['optimizer.lr'], good['params']['model.name'], good['params']['average.enabled']), ('0.002', 'vit_tiny_cifar10', 'true'))
        self.assertEqual(good['tags']['npu_train.run_dir'], str(folder))
        self.assertEqual(good['tags']['mlflow.runName'], 'version_0')

    def test_a_run_that_is_stopped_or_killed_goes_on_in_its_own_run_of_mlflow(self):
        common = [self.config(), 'data.train_size=3200', 'trainer.max_epochs=1000', 'checkpoint.every_n_train_steps=5', 'trainer.log_every_n_steps=2',
                  f'output.dir={self.dir}/out', self.loggers(), '--resume', 'auto']
        steps = 0
        for number in (signal.SIGINT, signal.SIGKILL):
            process = self.start(*common)
            least = steps + 12
            self.wait_for(process, lambda: any(int(r['step']) >= least for p in self.dir.glob('out/*/*/metrics.csv') for r in rows_of(p.parent) if r['step']), f'step {least}')
            process.send_signal(number)
            self.assertEqual(process.wait(), 128 + number if number == signal.SIGINT else -number)
            [stopped] = self.found()['vit_tiny_cifar10_generated']
            self.assertEqual(stopped['status'], 'KILLED' if number == signal.SIGINT else 'RUNNING')
            steps = max(int(row['step']) for row in rows_of(run_dir(self.dir / 'out')))
        self.assertDone(train_app(*common, f'trainer.max_steps={steps + 10}'))
        [again] = self.found()['vit_tiny_cifar10_generated']
        self.assertEqual((again['id'], again['status']), (stopped['id'], 'FINISHED'))
        self.assertSameCurves(again, run_dir(self.dir / 'out'))

    def test_two_programs_that_write_to_one_store(self):
        config = self.config(precision='32-true')
        names = ('one', 'two')
        both = [self.start(config, 'trainer.max_epochs=1', f'output.dir={self.dir}/{name}', self.loggers(experiment='shared', run_name=name)) for name in names]
        for process in both: self.assertEqual(process.wait(), 0, self.said())
        runs = {r['name']: r for r in self.found()['shared']}
        self.assertEqual(set(runs), set(names))
        for name in names: self.assertSameCurves(runs[name], run_dir(self.dir / name))


@unittest.skipUnless(importlib.util.find_spec('tensorboard'), 'the Python package tensorboard is not installed')
class InTensorBoard(ProgramTest):
    def test_tensorboard_reads_events_of_each_kind(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams import metadata
        folder = self.dir / 'events'
        code, out, err = run(BIN.parent / 'tests/test_io', '--test-case=events of each kind', env={**os.environ, 'EVENT_SAMPLES': str(folder)})
        self.assertEqual(code, 0, out + err)
        events = EventAccumulator(str(folder)).Reload()
        self.assertEqual([(e.step, e.value) for e in events.Scalars('loss')], [(300, 0.5)])
        self.assertTrue(math.isnan(events.Scalars('bad')[0].value))
        [text] = events.Tensors('notes/first')
        self.assertEqual((text.step, [t.decode() for t in text.tensor_proto.string_val]), (300, ['# A text\n\nwith \u00e4']))
        self.assertEqual(events.SummaryMetadata('notes/first').plugin_data.plugin_name, 'text')
        [image] = events.Images('images/pixels')
        self.assertEqual((image.step, image.width, image.height, image.encoded_image_string[:4]), (301, 2, 1, b'\x89PNG'))
        [histogram] = events.Histograms('weights')
        value = histogram.histogram_value
        self.assertEqual((histogram.step, value.min, value.max, value.num, value.sum, value.sum_squares), (302, -1, 3, 4, 4, 14))
        self.assertEqual((list(value.bucket_limit), list(value.bucket)), ([-0.5, 0.5, 2.5, 3.5], [1, 0, 2, 1]))
        content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        settings = metadata.parse_session_start_info_plugin_data(content).hparams
        self.assertEqual((settings['optimizer.lr'].number_value, settings['average.enabled'].bool_value, settings['model.name'].string_value), (0.1, True, 'resnet18'))

    def test_tensorboard_reads_the_settings_of_a_run(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams import metadata
        self.assertDone(train_app(self.config(), f'output.dir={self.dir}/out', 'trainer.max_epochs=1', 'output.logger=[tensorboard]'))
        folder = run_dir(self.dir / 'out')
        self.assertFalse((folder / 'metrics.csv').exists())
        events = EventAccumulator(str(folder)).Reload()
        content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        settings = metadata.parse_session_start_info_plugin_data(content).hparams
        self.assertEqual(settings['optimizer.lr'].number_value, 0.002)
        self.assertEqual(settings['optimizer.name'].string_value, 'adamw')
        self.assertIs(settings['average.enabled'].bool_value, True)
        self.assertEqual(settings['precision'].string_value, '16-mixed')
        self.assertIn('train/loss', events.Tags()['scalars'])


if __name__ == '__main__': main()
