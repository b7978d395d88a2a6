"""The output of the programs on a terminal (a pseudo-terminal): it fits the width, and the progress is one line."""
import fcntl
import json
import os
import re
import struct
import subprocess
import termios
import unittest

from images import png
from programs import BIN, FULL, ProgramTest, main, npu_tool, run_dir, train_app

FAILED = 7
WIDTHS = (80, 120) if FULL else (80,)
QUICK = ('precision=32-true', 'trainer.max_epochs=1')


class Terminal:
    """A program whose stdout is a terminal with this number of columns; stderr is separate. With `output`, stdout goes there and stderr is the terminal."""

    def __init__(self, columns, program, *args, errors=None, output=None):
        self.master, terminal = os.openpty()
        self.resize(columns)
        self.text = ''
        self.process = subprocess.Popen([str(BIN / program), *map(str, args)], stdin=subprocess.DEVNULL, stdout=output or terminal, stderr=terminal if output else errors)
        os.close(terminal)

    def resize(self, columns): fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', 50, columns, 0, 0))

    def read(self):
        """Reads more of the text; returns False at the end."""
        try: part = os.read(self.master, 1024)
        except OSError: part = b''  # EIO: on Linux, the program has closed its side
        self.text += part.decode(errors='replace')
        return bool(part)

    def finish(self):
        while self.read(): pass
        os.close(self.master)
        return self.process.wait(), self.text.replace('\r\n', '\n')


def written_lines(text):
    """Each line as it was written; a line that was overwritten is listed several times."""
    return [part.replace('\x1b[K', '') for line in text.split('\n') for part in line.split('\r')]


def screen(text):
    """The lines that are visible at the end."""
    out = ['']
    for part in re.split(r'(\n|\r|\x1b\[K)', text):
        if part == '\n': out.append('')
        elif part == '\r': out[-1] = ''
        elif part == '\x1b[K': pass  # erases to the end of the line; always follows a carriage return
        elif part: out[-1] += part
    return out


class Terminals(ProgramTest):
    def run_on(self, columns, program, *args):
        with open(self.dir / 'errors.txt', 'w+') as errors:
            code, text = Terminal(columns, program, *args, errors=errors).finish()
            errors.seek(0)
            return code, text, errors.read()

    def assertFits(self, columns, text):
        """No line is wider, except a single word (a path is not broken, so that it can be copied)."""
        for line in written_lines(text):
            if len(line.split()) > 1: self.assertLessEqual(len(line), columns, repr(line))

    def check(self, *args, codes=(0, ), first=None):
        """A command of npu_tool at every width; `first`: what its first line says."""
        for columns in WIDTHS:
            with self.subTest(args=args[:2], columns=columns):
                code, text, errors = self.run_on(columns, 'npu_tool', *args)
                self.assertIn(code, codes, text + errors)
                self.assertGreater(len(text), 20)
                self.assertFits(columns, text)
                self.assertNotRegex(text, r'\w\.\.\.\w')  # no word is shortened in the middle
                if first: self.assertRegex(text.split('\n')[0], first)

    def test_one_line_of_progress(self):
        config = self.config(precision='16-mixed')
        for columns in (60, 120) if not FULL else (60, *WIDTHS):
            code, text, errors = self.run_on(columns, 'train_app', config, f'output.dir={self.dir}/{columns}')
            self.assertEqual(code, 0, errors)
            self.assertFits(columns, text)
            written = written_lines(text)
            bars = [line for line in written if line.startswith('[') and ' step ' in line]
            self.assertGreaterEqual(len(bars), 3)
            for bar in bars:
                self.assertLess(len(bar), columns, bar)
                self.assertRegex(bar, r'^\[#*\.*\]  epoch \d/3  step \d+/20  eta \d\d:\d\d')
                self.assertIn('loss ', bar)
            validations = [line for line in written if 'validation ' in line]
            self.assertGreaterEqual(len(validations), 3)
            for bar in validations: self.assertRegex(bar, r'^\[#*\.*\]  validation \d+/7')
            left = screen(text)
            self.assertFalse([line for line in left if line.startswith('[')], 'a bar is left')
            self.assertEqual(len([line for line in left if line.startswith('epoch ') and ' done:' in line]), 3)

    def test_a_bar_has_all_that_there_is_room_for(self):
        code, text, errors = self.run_on(400, 'train_app', self.config(precision='16-mixed'), f'output.dir={self.dir}/wide')
        self.assertEqual(code, 0, errors)
        bar = next(line for line in written_lines(text) if ' step 20/20 ' in line)
        for word in ('eta ', '(epoch 00:00)', 'loss ', 'acc1 ', 'lr ', 'samples/s', 'data ', 'loss_scale ', 'skipped ', 'mem '):
            self.assertIn(word, bar)

    def test_a_resized_terminal(self):
        """The output is larger than the terminal's buffer, so most of it is written after the resize."""
        terminal = Terminal(120, 'train_app', self.config(precision='32-true'), 'trainer.max_epochs=60', 'output.dir=""')
        while ' step ' not in terminal.text: self.assertTrue(terminal.read())
        wide = len(terminal.text)
        terminal.resize(60)
        code, text = terminal.finish()
        self.assertEqual(code, 0)
        bars = [line for line in written_lines(text[wide:]) if ' step ' in line]
        self.assertGreater(len(bars), 30)
        for bar in bars[-10:]: self.assertLess(len(bar), 60)

    def test_images_are_counted_on_stderr(self):
        config, out, folder = self.config(precision='32-true'), self.dir / 'out', self.dir / 'images' / 'a'
        folder.mkdir(parents=True)
        for i in range(12): png(folder / f'{i:02}.png', 32, (20 * i, 10, 10))
        self.assertDone(train_app(config, *QUICK, 'trainer.max_steps=1', f'output.dir={out}'))
        for what, total, *command in (('images', 12, 'predict', '--checkpoint', run_dir(out), folder), ('samples', 12, 'data', 'stats', folder.parent),
                                      ('samples', 420, 'data', 'check', config)):
            with self.subTest(command[:2]), open(self.dir / 'out.json', 'w+') as output:
                code, text = Terminal(60, 'npu_tool', *command, '--json', output=output).finish()
                self.assertEqual(code, 0, text)
                bars = [line for line in written_lines(text) if f'  {what} ' in line]
                self.assertEqual(bars[0], f'[{"." * 20}]  {what} 0/{total}')
                self.assertEqual(bars[-1], f'[{"#" * 20}]  {what} {total}/{total}  eta 00:00')
                self.assertFalse([line for line in screen(text) if '[' in line], 'a bar is left')
                output.seek(0)
                self.assertTrue(json.load(output))
                self.assertNotIn(' eta ', npu_tool(*command)[2])

    def test_commands_on_a_configuration(self):
        config = self.config(precision='32-true')
        small = ('--batch', '2', '--steps', '3', '--warmup', '1', '--infer-steps', '2', '--sweep-steps', '2', '--no-machine')
        a = self.dir / 'a.json'
        self.check('bench', config, '--what', 'step,train,infer,batch,loader', *small, '--out', a)
        self.check('bench', '--compare', a, a, first='no row of A is slower')
        self.check('memory', config, '--hbm', '1GiB', first='fits: needs')
        self.check('memory', config, '--check', '2,3', 'device=sim_npu', 'sim_npu.unsupported_ops=ignore')
        self.check('plan', config, '--ranks', '1,2', '--link', '1GB/s', '--peak', '1TFLOPs', first='best with 2 ranks: ')
        self.check('analyze', config, codes=(0, FAILED), first='torch_npu')
        self.check('analyze', config, '--try', 'cpu', codes=(0, FAILED), first='cpu: ')
        self.check('summary', config, first='parameters')
        self.check('summary', config, '--layers')
        self.check('summary', '--model', 'resnet18', '--layers')
        self.check('checklist', config, '--device', 'cpu', codes=(0, FAILED), first='migration to cpu: ')
        self.check('validate', config, '--device', 'sim_npu', '--samples', '4', '--train-steps', '2', 'sim_npu.unsupported_ops=ignore',
                   first='validation passed')
        self.check('verify-determinism', config, *QUICK)

    def test_commands_on_machines_and_sources(self):
        (self.dir / 'project').mkdir()
        (self.dir / 'project' / 'a_rather_long_name_of_a_file.py').write_text('import torch\nimport apex\nx = torch.ones(3).cuda()\n' * 4)
        self.check('doctor', '--no-hello', '--output', self.dir, codes=(0, FAILED), first='checks passed')
        self.check('analyze', '--source', self.dir / 'project', codes=(0, FAILED))

    def test_commands_on_runs(self):
        config, out = self.config(precision='32-true'), self.dir / 'out'
        self.assertDone(train_app(config, *QUICK, f'output.dir={out}'))
        self.check('eval', '--checkpoint', run_dir(out))
        self.check('weights', '--from', run_dir(out) / 'checkpoints' / 'last', '--to', self.dir / 'w.safetensors')
        baseline = self.dir / 'b.json'
        self.check('baseline', config, *QUICK, 'output.dir=""', '--out', baseline)
        self.check('baseline', config, *QUICK, 'output.dir=""', '--against', baseline, '--least-speed', '0.001', codes=(0, FAILED),
                   first='accuracy: passed')

    def test_comparisons(self):
        """Comparisons of dumps that agree and that differ, by statistics and by values, and of histories, run folders and checkpoints."""
        for name, words in (('a', ()), ('b', ('optimizer.lr=0.02', ))):
            for task in ('statistics', 'tensor'):
                self.assertDone(train_app(self.config(precision='32-true'), 'trainer.max_steps=2', f'output.dir={self.dir}/{task}_{name}', *words,
                                          f'dump={{dir: {self.dir}/{task}_{name}_dump, task: {task}, steps: [0, 1]}}'))
        for task in ('statistics', 'tensor'):
            dumps = [f'{self.dir}/{task}_{name}_dump' for name in ('a', 'b')]
            self.check('compare', dumps[0], dumps[0], first='The runs agree')
            self.check('compare', *dumps, '--rows', '0', codes=(FAILED, ), first='The runs differ')
        a, b = (run_dir(self.dir / f'tensor_{name}') for name in ('a', 'b'))
        self.check('compare', a, a)
        self.check('compare', a, b, codes=(0, FAILED))
        self.check('compare', a / 'metrics.csv', b / 'metrics.csv', codes=(0, FAILED))
        self.check('compare', a / 'checkpoints' / 'last', b / 'checkpoints' / 'last', codes=(FAILED, ))

    def test_a_bench_row_is_broken_where_there_is_no_terminal_too(self):
        out = self.assertDone(npu_tool('bench', self.config(precision='32-true'), '--what', 'step', '--batch', '2', '--steps', '3', '--warmup', '1',
                                       '--no-machine'))
        table = out.split('section', 1)[1].split('\n\n')[0]
        self.assertLessEqual(max(map(len, table.split('\n'))), 120)
        self.assertIn('step_ms_median', table)


class CheckItself(unittest.TestCase):
    def test_the_screen(self):
        self.assertEqual(screen('a\nbar\r\x1b[Kdone\n'), ['a', 'done', ''])
        self.assertEqual(written_lines('a\nbar\r\x1b[Kdone\n'), ['a', 'bar', 'done', ''])


if __name__ == '__main__': main()
