#!/usr/bin/env python3
"""npu_tool analyze --source: exit status, reports, the rewritten copy, and source trees that are hostile."""
import csv
import json
import os
import shutil
import subprocess
import unittest

import browser
from html_page_test import check_page
from peers import MODELS_PYTHON
from programs import SOURCE, ProgramTest, in_full, main, npu_tool, tree
from torch_npu_wheel import PYTHON, needs_cann, of_user

# Program that prints the names that transfer_to_npu does not replace. It patches modules member by member.
AUTOMATIC = '''
import inspect, json, operator, sys
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
def look(name):
    try: return operator.attrgetter(name.removeprefix('torch.'))(torch)
    except AttributeError: return None
def plain(value): return getattr(value, '__wrapped__', value)
print(json.dumps([cuda for cuda, npu in json.loads(sys.argv[1]) if look(cuda) is None or (plain(look(cuda)) is not plain(look(npu)) and not inspect.ismodule(look(npu)))]))
'''
# Program that trains the original project on all of its data at once. Prints how far the weights of the given checkpoints are from its own,
# and in which order a loader of npu_distributed.py reads.
ORIGINAL = '''
import contextlib, json, runpy, sys
project, copy, *files = sys.argv[1:]
import torch
sys.argv = ['train.py', '--batch-size', '96', '--out', 'original.pt']
sys.path.insert(0, project)
with contextlib.redirect_stdout(None): runpy.run_path(f'{project}/train.py', run_name='__main__')
def weights(file): return torch.load(file, map_location='cpu')['model']
ours = weights('original.pt')
far = [max((theirs[name] - value).abs().max().item() for name, value in ours.items()) for theirs in map(weights, files)]
sys.path.insert(0, copy)
import npu_distributed
def order(epoch=None):
    if epoch is not None: npu_distributed.set_epoch(epoch)
    return [int(i) for batch in loader for i in batch]
loader = npu_distributed.DataLoader(range(64), 8, shuffle=True)
class Half(torch.nn.Linear):
    """Has a parameter without a gradient, which DataParallel accepts."""
    def __init__(self):
        super().__init__(3, 1)
        self.own = torch.nn.Parameter(torch.ones(2))
half, fixed = npu_distributed.DataParallel(Half()), npu_distributed.DataParallel(torch.nn.Flatten())
for _ in range(3): half(torch.ones(4, 3)).sum().backward()
accepted = [list(fixed(torch.ones(2, 3, 4)).shape), type(fixed.module).__name__, half.module.own.grad is None, isinstance(half, npu_distributed.DataParallel)]
print(json.dumps({'far': far, 'counted': [order(), order()], 'set': [order(0), order(1), order(0)], 'accepted': accepted}))
'''
PROJECTS = SOURCE / 'tests/tools/scan/projects'


WITHOUT_NPU = {'PYTHONPATH': str(SOURCE / 'tests/tools/scan/without_npu')}
FIND_TORCH = 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'
needs_torch = unittest.skipIf(subprocess.run([MODELS_PYTHON, '-c', FIND_TORCH]).returncode, 'there is no Python with torch (scripts/setup --dev)')


def expected(name):
    """(file:line, rule) of every place that has to be found."""
    return sorted(tuple(line.split('\t')[:2]) for line in (PROJECTS / f'{name}.expected').read_text().splitlines())


class AnalyzeSourceTest(ProgramTest):
    def analyze(self, folder, *words, code=0):
        got, out, error = npu_tool('analyze', '--source', folder, '--json', *words)
        self.assertEqual(got, code, error)
        return json.loads(out)

    def test_places_verdicts_and_exit_status(self):
        for name, verdict, code in (('resnet_ddp', 'feasible with changes', 0), ('image_dp', 'feasible with changes', 0), ('plain', 'ready', 0), ('detector', 'blocked', 7),
                                    ('llm_finetune', 'blocked', 7), ('cpp_classifier', 'blocked', 7)):
            result = self.analyze(PROJECTS / name, code=code)
            self.assertEqual(result['verdict'], verdict)
            self.assertEqual(sorted((f'{f["file"]}:{f["line"]}', f['rule']) for f in result['findings']), expected(name))
            self.assertAlmostEqual(sum(f['hours'] for f in result['findings']), result['hours'])

    def test_text_names_places_libraries_and_hours(self):
        code, out, _ = npu_tool('analyze', '--source', PROJECTS / 'llm_finetune', '--rows', 0)
        self.assertEqual(code, 7)
        self.assertIn('blocked by library BMTrain', out.splitlines()[0])
        for words in ('train.py:27:17', 'npu_grouped_matmul', 'h of work', 'triton-ascend'): self.assertIn(words, out)
        code, out, _ = npu_tool('analyze', '--source', PROJECTS / 'plain')
        self.assertEqual((code, len(out.splitlines())), (0, 1))

    def test_files(self):
        result = self.analyze(PROJECTS / 'detector', '--html', self.dir / 'a.html', '--csv', self.dir / 'a.csv', code=7)
        self.assertIn('box_iou_kernel', (self.dir / 'a.html').read_text())
        with open(self.dir / 'a.csv', newline='') as file: rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(result['findings']))
        self.assertIn('tools with spaces/dist train.sh', {row['file'] for row in rows})
        self.assertEqual({who: sum(row['done_by'] == who for row in rows) for who in result['done_by']}, result['done_by'])
        self.analyze(PROJECTS / 'llm_finetune', '--unsupported', self.dir / 'unsupported_operators.csv', code=7)
        self.assertTrue((self.dir / 'unsupported_operators.csv').read_text().startswith('operator,support,count,where,action,done_by,hours'))

    @needs_cann
    def test_what_is_automatic_is_so_with_the_real_torch_npu(self):
        """If a change is called automatic, transfer_to_npu must replace the name of torch.cuda by the name of torch.npu that a rewrite
        inserts."""
        rules, rows = ([line.split('\t') for line in (SOURCE / f'src/tools/scan/facts/{name}.tsv').read_text().splitlines() if not line.startswith('#')] for name in ('rules', 'apis'))
        automatic = {row[0] for row in rules[1:] if row[8] == 'yes'}
        names = [row[1:4:2] for row in rows[1:] if row[0] == 'py.name' and row[2] in automatic and row[3] and not row[1].endswith('*')]
        self.assertGreater(len(names), 60)
        done = subprocess.run([PYTHON, '-c', AUTOMATIC, json.dumps(names)], env=of_user(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertEqual(json.loads(done.stdout.splitlines()[-1]), [])

    def train_on_two_ranks(self, python, env):
        """The project image_dp, rewritten for several processes, trains on all of its data at once: (its folder, its checkpoint)."""
        out, checkpoint = self.dir / 'ranks', self.dir / 'two.pt'
        if not out.exists(): self.assertEqual(self.analyze(PROJECTS / 'image_dp', '--rewrite', out, '--distributed')['rewrite']['launcher'], 'run_distributed.sh')
        env = {k: v for k, v in env.items() if k not in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT')}
        done = subprocess.run([out / 'run_distributed.sh', '--batch-size', '96', '--out', checkpoint], env={**env, 'PYTHON': str(python), 'NPROC': '2', 'OMP_NUM_THREADS': '1'},
                              cwd=self.dir, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(done.stdout.count('2 devices, batches of 96'), 2)  # a rank may write between another one's text and line end
        self.assertEqual([p.name for p in self.dir.glob('two*')], ['two.pt'])
        return out, checkpoint

    def compare_with_original(self, out, *checkpoints):
        done = subprocess.run([MODELS_PYTHON, '-c', ORIGINAL, PROJECTS / 'image_dp', out, *checkpoints], env={**os.environ, **WITHOUT_NPU}, cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return json.loads(done.stdout)

    @needs_torch
    @in_full
    def test_two_ranks_train_as_the_one_process_did(self):
        out, checkpoint = self.train_on_two_ranks(MODELS_PYTHON, {**os.environ, **WITHOUT_NPU})
        found = self.compare_with_original(out, checkpoint)
        self.assertLess(found['far'][0], 1e-6)  # a rank that averages no gradients, or that reads another rank's data, is 6e-3 away
        for orders in (found['counted'], found['set'][:2]):
            for order in orders: self.assertEqual(sorted(order), list(range(64)))
            self.assertNotEqual(*orders)
        self.assertEqual(found['set'][0], found['set'][2])
        self.assertEqual(found['accepted'], [[2, 12], 'Flatten', True, True])

    @needs_torch
    @needs_cann
    @in_full
    def test_two_ranks_train_on_npus(self):
        """Two devices of sim_cann, whose ranks meet over HCCL by the real torch_npu."""
        out, checkpoint = self.train_on_two_ranks(PYTHON, of_user())
        self.assertLess(self.compare_with_original(out, checkpoint)['far'][0], 1e-5)

    def test_page_in_a_browser(self):
        if browser.find() is None: self.skipTest('no browser')
        self.analyze(PROJECTS / 'llm_finetune', '--html', self.dir / 'a.html', code=7)
        with browser.Browser() as tab: check_page(self, tab, self.dir / 'a.html')

    def test_a_copy_is_rewritten_and_the_original_is_not(self):
        source, out = self.dir / 'my project', self.dir / 'out'
        shutil.copytree(PROJECTS / 'resnet_ddp', source)
        before = tree(source)
        result = self.analyze(source, '--rewrite', out)
        self.assertEqual(tree(source), before)
        self.assertGreater(result['rewrite']['changes'], 30)
        self.assertEqual(result['rewrite']['remaining']['hours_mechanical'], 0)
        log = json.loads((out / 'npu_migration/log.json').read_text())
        self.assertEqual(len(log['changes']), result['rewrite']['changes'])
        for path in out.rglob('*.py'): compile(path.read_text(), str(path), 'exec')
        self.assertEqual(self.analyze(out, '--rewrite', self.dir / 'again')['rewrite']['changes'], 0)
        if shutil.which('patch'):
            subprocess.run(['patch', '-s', '-p1', '-i', str(out / 'npu_migration/changes.diff')], cwd=source, check=True)
            shutil.rmtree(out / 'npu_migration')
            self.assertEqual([*tree(source).values()], [*tree(out).values()])

    def test_nothing_is_overwritten(self):
        source = self.dir / 'source'
        shutil.copytree(PROJECTS / 'resnet_ddp', source)
        (self.dir / 'mine').mkdir()
        (self.dir / 'mine/file').write_text('x')
        for out, words in (('mine', 'not empty'), ('source', 'must not contain each other'), ('source/out', 'must not contain each other'), ('.', 'must not contain each other')):
            self.assertFails(npu_tool('analyze', '--source', source, '--rewrite', self.dir / out), 2, words)
        self.assertEqual((self.dir / 'mine/file').read_text(), 'x')
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ['mine', 'source'])

    def test_folders_that_are_no_projects(self):
        self.assertFails(npu_tool('analyze', '--source', self.dir / 'missing'), 2, 'missing', 'does not exist')
        (self.dir / 'a.bin').write_bytes(bytes(range(256)))
        self.assertFails(npu_tool('analyze', '--source', self.dir), 3, 'no source files')
        self.assertFails(npu_tool('analyze', '--source', self.dir / 'a.bin'), 2, 'is not a folder')

    def test_binary_files_circles_odd_names_and_code_that_would_act(self):
        root = self.dir / 'odd'
        root.mkdir()
        (root / 'circle').symlink_to('.')
        (root / 'out').symlink_to('/')
        (root / 'binary.py').write_bytes(bytes(range(256)) * 100)
        (root / 'deep').mkdir()
        here = root / 'deep'
        for _ in range(100):
            here = here / 'd'
            here.mkdir()
        (here / 'a.py').write_text('x.cuda()\n')
        with open(os.fsencode(root) + b'/\x1b]0;evil\x07\xff.py', 'w') as file: file.write("x.to('cuda')\n")
        (root / 'setup.py').write_text(f"import pathlib\npathlib.Path({str(self.dir / 'ran')!r}).touch()\n")
        (root / 'CMakeLists.txt').write_text(f'execute_process(COMMAND touch {self.dir / "ran"})\n')
        (root / 'evil.sh').write_text(f'touch {self.dir / "ran"}\n')
        code, out, error = npu_tool('analyze', '--source', root, '--rewrite', self.dir / 'copy')
        self.assertEqual(code, 0, error)
        self.assertNotIn('\x1b', out)
        self.assertIn('\\x1b]0;evil\\x07\\xff.py:1:7', out)
        self.assertIn('d/a.py:1:2', out)
        self.assertIn('binary.py: not text', out)
        self.assertIn('2 links, not followed', out)
        self.assertIn('not copied: out: a link to an absolute path', out)
        self.assertEqual(os.readlink(self.dir / 'copy' / 'circle'), '.')
        self.assertFalse((self.dir / 'ran').exists())

    def test_a_million_lines(self):
        text = 'import torch\n' + 'x = 1  # cuda\ny = f(x)\n' * 50_000
        for i in range(10): (self.dir / f'm{i}.py').write_text(text + 'x.cuda()\n')
        result = self.analyze(self.dir)
        self.assertEqual(result['lines'], 10 * 100_002)
        self.assertEqual(result['places'], 20)


if __name__ == '__main__':
    main()
