"""Names that someone else chose (keys, tensors, paths): none affects the terminal, and a spreadsheet evaluates none of them."""
import csv
import json
import re
import struct

from programs import ProgramTest, SMALL, main, npu_tool, run_dir, train_app

ESCAPES = '\x1b]0;title\x07\x1b[2J\u009b31m\u202e'
# Characters that affect a terminal: control characters except line ends and tabs, and direction marks.
ACTS = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]')


def safetensors(path, tensors):
    header, data = {}, b''
    for name, values in tensors.items():
        packed = struct.pack(f'<{len(values)}f', *values)
        header[name] = {'dtype': 'F32', 'shape': [len(values)], 'data_offsets': [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)
    return path


class ForeignText(ProgramTest):
    def assertQuiet(self, result, code, shown='\\x1b]0;title'):
        """The name is present, and made harmless."""
        self.assertEqual(result[0], code, result[1] + result[2])
        said = result[1] + result[2]
        self.assertIsNone(ACTS.search(said), repr(said))
        self.assertIn(shown, said)

    def test_paths(self):
        path = self.dir / f'a{ESCAPES}.pth'
        self.assertQuiet(npu_tool('weights', '--from', path), 3)
        path.write_bytes(b'no archive')
        self.assertQuiet(npu_tool('weights', '--from', path), 6)
        self.assertQuiet(train_app(path), 2)
        self.assertQuiet(npu_tool('analyze', path), 2)
        self.assertQuiet(npu_tool('predict', '--model', 'resnet18', '--weights', path, path), 6)
        self.assertQuiet(npu_tool(f'--{ESCAPES}'), 2)
        self.assertQuiet(train_app(self.config(), f'--{ESCAPES}'), 2)
        out = self.dir / f'out{ESCAPES}'
        self.assertQuiet(train_app(self.config(precision='32-true'), 'trainer.max_epochs=1', f'output.dir={out}'), 0)
        for name in ('train.log', 'config.yaml', 'metrics.csv', 'history.json'):
            with self.subTest(name): self.assertIsNone(ACTS.search((run_dir(out) / name).read_text()))
        printed = train_app(self.config(), '--print-config', f'output.dir={out}')
        self.assertQuiet(printed, 0, '\\u202e')

    def test_keys(self):
        self.assertQuiet(train_app(self.config(SMALL.format(precision='32-true', workers=0) + '\n"\\e]0;title\\a\\e[2J": 1\n')), 2)
        self.assertQuiet(train_app(self.config(), f'trainer.{ESCAPES}=3'), 2)
        self.assertQuiet(train_app(self.config(), f'precision={ESCAPES}'), 2, '\\u009b31m')  # YAML turns the other characters into blanks
        self.assertQuiet(npu_tool('analyze', self.dir, f'--{ESCAPES}'), 2)

    def test_names_of_tensors(self):
        names = [f'=HYPERLINK("a"){ESCAPES}.weight', '+1.weight', '@a.weight', '-x.weight', 'plain.weight']
        a = safetensors(self.dir / 'a.safetensors', {name: [1.0, 2.0] for name in names})
        b = safetensors(self.dir / 'b.safetensors', {name: [1.0, 3.0] for name in names})
        self.assertQuiet(npu_tool('weights', '--from', a, '--model', 'resnet18'), 6)
        self.assertQuiet(npu_tool('compare', a, b, '--csv', self.dir / 'c.csv'), 7)
        self.assertQuiet(npu_tool('compare', a, b, '--json'), 7, '\\u001b]0;title')
        text = (self.dir / 'c.csv').read_text()
        self.assertIsNone(ACTS.search(text), repr(text))
        rows = list(csv.reader(text.splitlines()))
        self.assertTrue(any('HYPERLINK' in cell for row in rows for cell in row), rows)
        for cell in (cell for row in rows for cell in row if cell.startswith(('=', '+', '-', '@'))): float(cell)

    def test_results_are_not_written_into_a_checkpoint(self):
        self.assertDone(train_app(self.config(precision='32-true'), 'trainer.max_epochs=1', f'output.dir={self.dir}/out'))
        checkpoint = run_dir(self.dir / 'out') / 'checkpoints' / 'last'
        model = checkpoint / 'model.safetensors'
        before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
        link = self.dir / 'link'
        link.symlink_to(checkpoint)
        for command in (('weights', '--from', checkpoint, '--to', model), ('weights', '--from', model, '--to', link / 'new.safetensors'),
                        ('compare', checkpoint, checkpoint, '--csv', checkpoint / 'state.json'),
                        ('analyze', '--source', self.dir, '--csv', model), ('analyze', '--source', self.dir, '--html', checkpoint / 'page.html'),
                        ('analyze', self.config(), '--html', checkpoint / 'page.html'), ('memory', self.config(), '--html', checkpoint / 'page.html'),
                        ('checklist', self.config(), '--device', 'cpu', '--html', checkpoint / 'page.html'),
                        ('predict', '--checkpoint', checkpoint, '--logits', checkpoint / 'l.npy', self.dir / 'none.png')):
            with self.subTest(command[0]): self.assertFails(npu_tool(*command), 2, 'inside a checkpoint', 'elsewhere')
        self.assertEqual({path.name: path.read_bytes() for path in checkpoint.iterdir()}, before)


if __name__ == '__main__': main()
