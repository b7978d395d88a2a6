"""Resuming real processes: after a kill, after a signal, and with damaged checkpoints."""
import csv
import json
import signal
import struct

from programs import ProgramTest, checksums, checkpoints, main, npu_tool, run_dir, train_app

PARTS = ['model.safetensors', 'optimizer.safetensors', 'ema.safetensors', 'rng.safetensors']

# Runs that are so long that no kill comes too late. The loss scale grows every 5 steps and overflows again, so that steps are skipped
# throughout.
WINDOWS = 300  # windows of an epoch
LONG = [f'data.train_size={16 * WINDOWS}', 'trainer.max_epochs=1000', 'lr_scheduler.T_max=2000', 'checkpoint.every_n_epochs=0']


def counters(out):
    """state.json of the last checkpoint, without the times."""
    state = json.loads((run_dir(out) / 'checkpoints' / 'last' / 'state.json').read_text())
    for key in ('epoch/seconds', 'epoch/data_wait'): del state['loop'][key]
    return state


class Resume(ProgramTest):
    def assertSameEnd(self, a, b):
        """Both output folders end with the same bits: tensors, counters, loss scale, the position in the data."""
        whole, parts = checksums(a), checksums(b)
        for part in PARTS: self.assertEqual(whole[part], parts[part], part)
        self.assertEqual(counters(a), counters(b))

    def assertTensorBoardReads(self, out):
        """TensorBoard's own reader finds the rows of metrics.csv, none of them twice."""
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            return print('there is no tensorboard to read the events with')
        self.assertGreater(len(list(run_dir(out).glob('events.out.tfevents.*'))), 1)
        events = EventAccumulator(str(run_dir(out)), size_guidance={'scalars': 0})
        events.Reload()
        with open(run_dir(out) / 'metrics.csv') as file: rows = list(csv.DictReader(file))
        for phase in ('train', 'val', 'epoch'):
            found = [(e.step, e.value) for e in events.Scalars(f'{phase}/loss')] if f'{phase}/loss' in events.Tags()['scalars'] else []
            wanted = [(int(r['step']), struct.unpack('f', struct.pack('f', float(r['loss'])))[0]) for r in rows if r['phase'] == phase]
            self.assertEqual(found, wanted, phase)

    def test_killed_in_the_middle_of_an_epoch(self):
        whole, parts, steps = self.dir / 'whole', self.dir / 'parts', 420
        long = [self.config(), *LONG, f'trainer.max_steps={steps}']
        self.assertDone(train_app(*long, f'output.dir={whole}', 'checkpoint.every_n_train_steps=0'))
        end = checkpoints(whole)[-1]
        self.assertEqual(end['global_step'], steps)

        at = {'global_step': 0}
        for _ in range(2):  # the second time, it kills a run that was itself resumed
            least = at['global_step'] + 10
            process = self.start(*long, f'output.dir={parts}', 'checkpoint.every_n_train_steps=7', '--resume', 'auto')
            self.wait_for(process, lambda: any(m['global_step'] >= least for m in checkpoints(parts)), f'a checkpoint at step {least}')
            process.kill()
            self.assertEqual(process.wait(), -signal.SIGKILL)  # the process ran until then
            at = checkpoints(parts)[-1]
            self.assertLess(at['global_step'], steps)
            self.assertNotEqual(at['batches_seen'] % WINDOWS, 0)
            self.assertGreater(at['batches_seen'], at['global_step'])  # steps were skipped before the checkpoint ...
        skipped_after = (end['batches_seen'] - end['global_step']) - (at['batches_seen'] - at['global_step'])
        self.assertGreater(skipped_after, 0)  # ... and after it

        result = train_app(*long, f'output.dir={parts}', 'checkpoint.every_n_train_steps=7', '--resume', 'auto')
        self.assertDone(result)
        self.assertIn(at['folder'], [line.split(' (')[0].rsplit('/')[-1] for line in result[2].splitlines() if 'resumed from' in line])
        self.assertEqual([p.name for p in run_dir(parts).parent.iterdir()], ['version_0'])
        self.assertSameEnd(whole, parts)
        with open(run_dir(parts) / 'metrics.csv') as file:
            rows = [int(r['step']) for r in csv.DictReader(file) if r['phase'] == 'train' and r['skipped'] == '0']
        self.assertEqual(rows, sorted(set(rows)))  # steps after the checkpoint are not written twice
        self.assertTensorBoardReads(parts)

    def stopped_by(self, number):
        """Stops a run by a signal and resumes it. Only the handler of the signal can have saved the checkpoint."""
        whole, parts = self.dir / 'whole', self.dir / 'parts'
        common = [self.config(), *LONG, 'checkpoint.every_n_train_steps=0']
        process = self.start(*common, f'output.dir={parts}')

        def training():
            rows = [line.split(',') for path in parts.glob('*/version_0/metrics.csv') for line in path.read_text().splitlines()[1:]]
            return any(row[2] == 'train' and int(row[1]) >= 5 for row in rows if len(row) > 3)
        self.wait_for(process, training, 'step 5')
        self.assertEqual(checkpoints(parts), [])
        process.send_signal(number)
        self.assertEqual(process.wait(timeout=300), 128 + number, self.said())

        saved = checkpoints(parts)
        self.assertEqual(len(saved), 1, self.said())
        steps = saved[0]['global_step']
        self.assertGreaterEqual(steps, 5)
        self.assertIn(f'done: stop requested; {steps} steps', self.said())
        self.assertEqual((run_dir(parts) / 'checkpoints' / 'last').resolve().name, saved[0]['folder'])

        further = f'trainer.max_steps={steps + 12}'
        self.assertDone(train_app(*common, further, f'output.dir={whole}'))
        self.assertDone(train_app(*common, further, f'output.dir={parts}', '--resume', 'last'))
        self.assertEqual(checkpoints(parts)[-1]['global_step'], steps + 12)
        self.assertSameEnd(whole, parts)

    def test_ctrl_c_saves_and_resume_goes_on_bit_for_bit(self): self.stopped_by(signal.SIGINT)

    def test_sigterm_saves_and_resume_goes_on_bit_for_bit(self): self.stopped_by(signal.SIGTERM)

    def test_eval_gives_the_accuracy_of_training(self):
        out = self.dir / 'out'
        self.assertDone(train_app(self.config(), f'output.dir={out}', 'trainer.max_epochs=2'))
        history = json.loads((run_dir(out) / 'history.json').read_text())
        document = json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run_dir(out), '--json', 'trainer.threads=1')))
        for name in ('loss', 'acc1', 'acc5'): self.assertEqual(document[name], history['final_val'][name])

    def test_a_damaged_last_checkpoint_is_passed_over(self):
        out = self.dir / 'out'
        self.assertDone(train_app(self.config(), f'output.dir={out}', 'trainer.max_epochs=2', 'checkpoint.save_top_k=-1'))
        before, damaged = checkpoints(out)[-2:]
        weights = run_dir(out) / 'checkpoints' / damaged['folder'] / 'model.safetensors'
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        self.assertFails(train_app(self.config(), f'output.dir={out}', '--resume', 'last'), 6, 'model.safetensors')
        result = train_app(self.config(), f'output.dir={out}', '--resume', 'auto')
        self.assertDone(result)
        self.assertIn(f'resumed from {run_dir(out)}/checkpoints/{before["folder"]} ', result[2])


if __name__ == '__main__': main()
