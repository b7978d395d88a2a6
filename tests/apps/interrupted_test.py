"""Interruptions of a run from outside, and conflicts of two runs: signals, closed outputs, full disks, kills, a second start."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys

from programs import BIN, OF_PROGRAMS, ProgramTest, checkpoints, main, run_dir, train_app

# Hours of training, in steps of milliseconds.
ENDLESS = ['data.train_size=16000', 'trainer.max_epochs=1000', 'lr_scheduler.T_max=2000', 'checkpoint.every_n_epochs=0', 'precision=32-true']

UNSAVED = [*ENDLESS, 'checkpoint.every_n_train_steps=0']  # such a run saves a checkpoint only at a signal


def signals(status, name):
    """A set of signals of /proc/PID/status, such as SigIgn."""
    mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith(name + ':')), 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


class Interrupted(ProgramTest):
    def rows(self, out):
        """Rows of metrics.csv: epoch, step, phase ..."""
        return [line.split(',') for path in pathlib.Path(out).glob('*/version_0/metrics.csv') for line in path.read_text().splitlines()[1:]]

    def trained(self, out, step):
        return lambda: any(row[2] == 'train' and int(row[1]) >= step for row in self.rows(out) if len(row) > 3)

    def end(self, process):
        process.kill()
        process.wait()

    # ---- two runs, one folder ----

    def test_a_second_resume_is_refused_by_the_name_of_the_first(self):
        out = self.dir / 'out'
        args = [self.config(), *ENDLESS, f'output.dir={out}', 'checkpoint.every_n_train_steps=5', '--resume', 'auto']
        first = self.start(*args)
        self.wait_for(first, self.trained(out, 1), 'a first step')
        holder = f'process {first.pid} on host {os.uname().nodename} since '
        self.assertFails(train_app(*args), 6, 'version_0', 'in use by ' + holder)  # also without a checkpoint
        self.wait_for(first, lambda: checkpoints(out), 'a checkpoint')
        for which in ('auto', 'last'):
            self.assertFails(train_app(*args[:-1], which), 6, 'version_0', holder, 'hint: wait')
        path = run_dir(out) / 'checkpoints'
        self.wait_for(first, lambda: (path / 'last').exists(), 'the link')
        self.assertFails(train_app(*args[:-1], path), 6, holder)
        self.assertEqual(sorted(p.name for p in run_dir(out).parent.iterdir()), ['version_0'])

        # The lock is released when the process ends, in whatever way.
        self.end(first)
        self.assertTrue((run_dir(out) / 'run.lock').exists())
        self.assertDone(train_app(*args, f'trainer.max_steps={checkpoints(out)[-1]["global_step"] + 3}'))
        self.assertFalse((run_dir(out) / 'run.lock').exists())

    def test_a_second_run_of_the_name_has_a_folder_of_its_own(self):
        out = self.dir / 'out'
        args = [self.config(), *ENDLESS, f'output.dir={out}']
        first = self.start(*args)
        self.wait_for(first, self.trained(out, 1), 'a first step')
        self.assertDone(train_app(*args, 'trainer.max_steps=2'))
        self.assertTrue((next(out.glob('*/version_1')) / 'checkpoints' / 'last').exists())
        self.end(first)

    # ---- signals ----

    def test_programs_do_not_inherit_what_a_driver_inherited(self):
        """Signals are ignored as under nohup or after `&` in a script, or blocked by a parent. The driver itself keeps ignoring them."""
        def inherit():
            for number in OF_PROGRAMS: signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, OF_PROGRAMS)
        driver = "import os, programs; os.kill(os.getpid(), 1); os.kill(os.getpid(), 2); print(programs.run('cat', '/proc/self/status')[1])"
        status = subprocess.run([sys.executable, '-c', driver], cwd=pathlib.Path(__file__).parent, preexec_fn=inherit, restore_signals=False,
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(signals(status, 'SigIgn') & {*OF_PROGRAMS, signal.SIGPIPE}, set())
        self.assertEqual(signals(status, 'SigBlk'), set())

    def saved_by(self, number, *extra):
        """Checks that the signal ends a run with a checkpoint, which only the handler of the signal can have saved."""
        out = self.dir / f'out{number}'
        process = self.start(self.config(), *UNSAVED, f'output.dir={out}', *extra)
        self.wait_for(process, self.trained(out, 3), 'step 3')
        self.assertEqual(checkpoints(out), [])
        process.send_signal(number)
        self.assertEqual(process.wait(timeout=300), 128 + number, self.said())
        self.assertEqual(len(checkpoints(out)), 1, self.said())

    def test_what_terminals_and_schedulers_send_ends_a_run_with_a_save(self):
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            with self.subTest(number): self.saved_by(number)

    def test_sigterm_during_a_validation(self):
        # Ten steps, followed by a validation of 20,000 samples.
        out = self.dir / 'out'
        args = [self.config(precision='32-true'), 'data.train_size=10', 'data.batch_size=1', 'data.val_size=20000', 'trainer.num_sanity_val_steps=0',
                'checkpoint.every_n_train_steps=0', f'output.dir={out}']
        process = self.start(*args)
        self.wait_for(process, self.trained(out, 10), 'the last step of the epoch')
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=300), 128 + signal.SIGTERM, self.said())
        self.assertEqual([row for row in self.rows(out) if row[2] != 'train'], [])
        self.assertEqual([m['global_step'] for m in checkpoints(out)], [10])
        # The resumed run first validates, and then continues to train.
        whole = self.dir / 'whole'
        short = ['data.val_size=100', 'trainer.max_epochs=2']
        self.assertDone(train_app(*args, *short, '--resume', 'auto'))
        self.assertDone(train_app(*args, *short, f'output.dir={whole}'))
        self.assertEqual([row[:4] for row in self.rows(out)], [row[:4] for row in self.rows(whole)])

    def test_the_same_signal_twice_at_once_is_one_wish(self):
        out = self.dir / 'out'
        process = self.start(self.config(), *UNSAVED, f'output.dir={out}')
        self.wait_for(process, self.trained(out, 3), 'step 3')
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM): process.send_signal(number)
        self.assertIn(process.wait(timeout=300), (128 + signal.SIGTERM, 128 + signal.SIGHUP), self.said())
        self.assertEqual(len(checkpoints(out)), 1, self.said())

    def test_nohup_stays_nohup(self):
        out = self.dir / 'out'
        with open(self.dir / 'said.txt', 'w') as said:
            words = [BIN / 'train_app', self.config(), *ENDLESS, f'output.dir={out}']
            process = self.ended(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                                  preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)))
        self.wait_for(process, self.trained(out, 3), 'step 3')
        status = pathlib.Path(f'/proc/{process.pid}/status').read_text()
        self.assertEqual(signals(status, 'SigIgn') & {signal.SIGHUP, signal.SIGTERM}, {signal.SIGHUP})
        process.send_signal(signal.SIGHUP)
        step = max(int(row[1]) for row in self.rows(out) if row[2] == 'train')
        self.wait_for(process, self.trained(out, step + 100), 'later steps')
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=300), 128 + signal.SIGTERM, self.said())

    # ---- outputs ----

    def test_a_pipe_that_nobody_reads_any_more_ends_a_run_with_a_save(self):
        for ignored in (False, True):  # some parent processes ignore the signal, and the run inherits that
            with self.subTest(ignored=ignored):
                out = self.dir / f'out{ignored}'
                words = [BIN / 'train_app', self.config(), *UNSAVED, f'output.dir={out}', 'trainer.log_every_n_steps=1']
                process = self.ended(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                      restore_signals=not ignored))
                while not self.trained(out, 3)(): self.assertTrue(process.stdout.readline())
                process.stdout.close()
                self.assertEqual(process.wait(timeout=300), 128 + signal.SIGPIPE)
                self.assertEqual(len(checkpoints(out)), 1)

    def test_outputs_that_are_closed_at_the_start_do_not_become_files_of_the_run(self):
        out = self.dir / 'out'
        words = ' '.join(f"'{word}'" for word in [BIN / 'train_app', self.config(precision='32-true'), 'trainer.max_epochs=1',
                                                  'trainer.log_every_n_steps=1', f'output.dir={out}'])
        code = subprocess.run(['sh', '-c', f'exec {words} <&- >&- 2>&-']).returncode
        self.assertEqual(code, 0)
        phases = [row[2] if len(row) > 3 else row for row in self.rows(out)]
        self.assertEqual(phases, ['train'] * 20 + ['val', 'epoch'])
        json.loads((run_dir(out) / 'history.json').read_text())

    # ---- disks ----

    def test_logs_that_cannot_grow_do_not_end_a_run(self):
        # The largest allowed file. The files of a checkpoint are smaller, but each log grows beyond the limit, as on a disk that becomes
        # full.
        limit = 50000
        out = self.dir / 'out'
        args = [self.config(precision='32-true'), 'model={name: vit_tiny_cifar10, depth: 1, dim: 8, heads: 2, patch_size: 16}',
                'optimizer={name: sgd, lr: 0.01}', 'average.enabled=false', 'lr_scheduler={}', 'trainer.log_every_n_steps=1', 'data.num_workers=0',
                'data.batch_size=1', 'data.val_size=1', 'trainer.limit_val_batches=1', 'checkpoint.every_n_train_steps=50',
                f'output.dir={out}']
        result = subprocess.run([BIN / 'train_app', *args, 'data.train_size=5', 'trainer.max_epochs=180'], capture_output=True, text=True,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)))
        self.assertEqual(result.returncode, 0, result.stdout[-2000:] + result.stderr[-2000:])
        folder = run_dir(out)
        for name in ('metrics.csv', 'history.json', 'train.log', 'the TensorBoard events'):
            warnings = [line for line in result.stderr.splitlines() if line.startswith('warning') and (name in line or name == 'train.log')]
            self.assertTrue(warnings, name + ' did not reach the limit: ' + str({p.name: p.stat().st_size for p in folder.iterdir()}))
            if name != 'train.log': self.assertEqual(len(warnings), 1, warnings)
        for path in folder.iterdir(): self.assertLessEqual(path.stat().st_size, limit)
        self.assertEqual((folder / 'metrics.csv').read_text()[-1], '\n')  # only complete lines
        self.assertEqual(len(json.loads((folder / 'history.json').read_text())['epochs']) > 0, True)
        last = json.loads((folder / 'checkpoints' / 'last' / 'manifest.json').read_text())
        self.assertEqual(last['global_step'], 900)
        # Without the limit, the run and its logs continue.
        self.assertDone(train_app(*args, 'data.train_size=5', 'trainer.max_epochs=182', '--resume', 'auto'))
        self.assertEqual([int(row[1]) for row in self.rows(out) if row[2] == 'train'][-10:], list(range(901, 911)))

    # ---- kills ----

    def test_a_kill_between_the_saves_of_an_epochs_last_step_and_of_its_end(self):
        out = self.dir / 'out'
        args = [self.config(precision='32-true'), 'checkpoint.every_n_train_steps=20', 'checkpoint.save_top_k=-1', f'output.dir={out}']
        self.assertDone(train_app(*args))
        rows, history = self.rows(out), json.loads((run_dir(out) / 'history.json').read_text())
        for path in (run_dir(out) / 'checkpoints').iterdir():
            if path.is_symlink(): path.unlink()
            elif path.name != 'epoch=000-step=20':
                for file in path.iterdir(): file.unlink()
                path.rmdir()
        result = train_app(*args, '--resume', 'auto')
        self.assertIn('epoch=000-step=20', result[2])
        self.assertDone(result)
        again = json.loads((run_dir(out) / 'history.json').read_text())
        self.assertEqual([row[:4] for row in self.rows(out)], [row[:4] for row in rows])
        self.assertEqual([(e['epoch'], e['train'], e['val']) for e in again['epochs']], [(e['epoch'], e['train'], e['val']) for e in history['epochs']])

    def test_what_kills_leave_is_gone_after_the_resume(self):
        out = self.dir / 'out'
        args = [self.config(), *ENDLESS, f'output.dir={out}', 'checkpoint.every_n_train_steps=1', '--resume', 'auto']
        least = 0
        for _ in range(3):
            process = self.start(*args)
            self.wait_for(process, lambda: any(m['global_step'] > least + 3 for m in checkpoints(out)), 'checkpoints')
            self.end(process)
            least = checkpoints(out)[-1]['global_step']
        # Like folders that remain if a process is killed during a save, or during a removal.
        for name in ('.epoch=000-step=9999.tmp-abcdef-1-0', '.epoch=000-step=1.tmp-abcdef-1-1'):
            (run_dir(out) / 'checkpoints' / name).mkdir()
            (run_dir(out) / 'checkpoints' / name / 'model.safetensors').write_bytes(bytes(1000))
        result = train_app(*args, f'trainer.max_steps={least + 5}')
        self.assertDone(result)
        self.assertEqual(len([line for line in result[2].splitlines() if 'incomplete files of a killed run' in line]), 1, result[2])
        self.assertNotIn('warning', result[2])
        names = {path.name for path in (run_dir(out) / 'checkpoints').iterdir()}
        self.assertEqual({name for name in names if name.startswith('.')}, set())
        self.assertEqual(names - {'last', 'best'}, {m['folder'] for m in checkpoints(out)})


if __name__ == '__main__': main()
