"""Resume over real processes: killed, stopped by a signal, and the proof command."""
import signal
import subprocess
import time
import unittest

from programs import BIN, ProgramTest, checksums, main, npu_tool, run_dir, train_app
import json

PARTS = ['model.safetensors', 'optimizer.safetensors', 'ema.safetensors', 'rng.safetensors']


class Resume(ProgramTest):
    def start(self, out, *args):
        return subprocess.Popen([str(BIN / 'train_app'), str(self.config()), f'output.dir={out}', *args], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def wait_for_checkpoint(self, process, out, least):
        """Until a checkpoint of at least `least` steps is there."""
        for _ in range(600):
            for manifest in out.glob('*/version_0/checkpoints/*/manifest.json'):
                try:
                    if json.loads(manifest.read_text())['global_step'] >= least: return
                except (OSError, ValueError): pass  # just being replaced
            self.assertIsNone(process.poll(), 'the run ended too early')
            time.sleep(0.05)
        self.fail('no checkpoint appeared')

    def slow(self, out):
        return self.start(out, 'data.num_workers=4')

    def test_killed_in_the_middle_of_an_epoch(self):
        whole, parts = self.dir / 'whole', self.dir / 'parts'
        self.assertDone(train_app(self.config(), f'output.dir={whole}'))
        history = json.loads((run_dir(whole) / 'history.json').read_text())
        self.assertGreater(history['skipped_steps'], 0)  # the first scales are too high on purpose

        process = self.slow(parts)
        self.wait_for_checkpoint(process, parts, 8)
        process.kill()
        process.communicate()
        self.assertDone(train_app(self.config(), f'output.dir={parts}', '--resume', 'auto'))
        a, b = checksums(whole), checksums(parts)
        for part in PARTS: self.assertEqual(a[part], b[part], part)

    def test_ctrl_c_saves_and_resume_goes_on(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            out = self.dir / f'out{code}'
            process = self.slow(out)
            self.wait_for_checkpoint(process, out, 4)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
            if process.returncode == 0: self.skipTest('the run was over before the signal')
            self.assertEqual(process.returncode, code, err)
            text = self.assertDone(train_app(self.config(), f'output.dir={out}', '--resume', 'last'))
            self.assertIn('done:', text)

    def test_eval_gives_the_accuracy_of_training(self):
        out = self.dir / 'out'
        self.assertDone(train_app(self.config(), f'output.dir={out}', 'trainer.max_epochs=2'))
        history = json.loads((run_dir(out) / 'history.json').read_text())
        document = json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run_dir(out), '--json', 'trainer.threads=1')))
        for name in ('loss', 'acc1', 'acc5'): self.assertEqual(document[name], history['final_val'][name])

    def test_a_damaged_last_checkpoint_is_passed_over(self):
        out = self.dir / 'out'
        self.assertDone(train_app(self.config(), f'output.dir={out}', 'trainer.max_epochs=2', 'checkpoint.save_top_k=-1'))
        weights = run_dir(out) / 'checkpoints' / 'last' / 'model.safetensors'
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        self.assertFails(train_app(self.config(), f'output.dir={out}', '--resume', 'last'), 6, 'model.safetensors')
        self.assertDone(train_app(self.config(), f'output.dir={out}', '--resume', 'auto'))

    def test_another_models_checkpoint_is_refused(self):
        out = self.dir / 'out'
        self.assertDone(train_app(self.config(), f'output.dir={out}', 'trainer.max_epochs=1'))
        self.assertFails(train_app(self.config(), 'model.dim=64', f'output.dir={out}', '--resume', 'auto'), 6, 'another model')

    def test_verify_resume(self):
        self.assertIn('bit for bit', self.assertDone(train_app(self.config(), '--verify-resume')))
        code, out, err = train_app(self.config(), '--verify-resume', '--leave-out', 'ema')
        self.assertEqual(code, 7, err)
        self.assertIn('ema', out)


if __name__ == '__main__': main()
