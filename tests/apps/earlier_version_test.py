"""Run folders, checkpoints and configurations of an earlier version: tests/fixtures/version_0_1_0 was written before checkpoints had
format 2. `run` was stopped at step 9 of 18; `end` is the result of that version after it continued to the end."""
import array
import json
import shutil
import unittest

from images import png
from programs import BIN, ProgramTest, SOURCE, main, npu_tool, train_app

FIXTURE = SOURCE / 'tests/fixtures/version_0_1_0'


def numbers(path):
    """The header and the fp32 numbers of a .safetensors file."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], 'little')
    tensors = {name: value for name, value in json.loads(data[8:end]).items() if name != '__metadata__'}
    assert {value['dtype'] for value in tensors.values()} == {'F32'}, tensors
    return tensors, array.array('f', data[end:])


def largest_difference(path, other):
    (tensors, a), (others, b) = numbers(path), numbers(other)
    assert tensors == others
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


class EarlierVersion(ProgramTest):
    def earlier(self):
        """The run folder of the earlier version, in a place where a run can continue."""
        target = self.dir / 'runs/old/version_0'
        shutil.copytree(FIXTURE / 'run', target, symlinks=True)
        self.assertEqual(json.loads((target / 'checkpoints/last/manifest.json').read_text())['format'], 1)
        return target

    def test_a_resume_ends_where_the_earlier_version_did(self):
        run = self.earlier()
        out = self.assertDone(train_app(FIXTURE / 'config.yaml', '--resume', 'auto', cwd=self.dir))
        self.assertIn('18 steps', out)
        self.assertFalse(list(run.glob('*.damaged*')))
        ended = run / 'checkpoints/last/model.safetensors'
        here, there = (json.loads((folder / 'environment.json').read_text()) for folder in (run, FIXTURE / 'run'))
        same = all(here[key] == there[key] for key in ('cpu', 'cpu_capability', 'libtorch', 'mkl', 'mkldnn.version', 'libc', 'compiler'))
        # At that time, the norm for clipping was a sum in fp32.
        self.assertLess(largest_difference(ended, FIXTURE / 'end/model.safetensors'), 1e-6 if same else 1e-2)
        now, then = (json.loads((folder / 'history.json').read_text())['epochs'] for folder in (run, FIXTURE / 'end'))
        self.assertEqual(len(now), 3)
        for a, b in zip(now, then, strict=True):
            self.assertEqual((a['epoch'], a['global_step'], a['skipped'], a['lr']), (b['epoch'], b['global_step'], b['skipped'], b['lr']))
            self.assertAlmostEqual(a['train']['loss'], b['train']['loss'], delta=1e-6 if same else 1e-3)
            self.assertAlmostEqual(a['val']['loss'], b['val']['loss'], delta=1e-6 if same else 1e-3)  # at that time, averages were sums in fp32
        header, *rows = (run / 'metrics.csv').read_text().splitlines()
        self.assertIn(',samples_per_second,', header)
        self.assertEqual(rows[0].split(',')[:3], ['0', '6', 'val'])

    def test_its_checkpoint_is_evaluated_and_predicts(self):
        run = self.earlier()
        document = json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run, '--json')))
        self.assertAlmostEqual(document['loss'], 2.3302, delta=1e-3)
        png(self.dir / 'a.png', 40, (200, 10, 10))
        document = json.loads(self.assertDone(npu_tool('predict', '--checkpoint', run, self.dir / 'a.png', '--json')))
        self.assertEqual(len(document['predictions'][0]['top']), 5)
        self.assertDone(npu_tool('weights', '--from', run, '--to', self.dir / 'w.safetensors'))

    def test_its_run_is_compared_with_one_of_today(self):
        run = self.earlier()
        self.assertDone(train_app(FIXTURE / 'config.yaml', 'trainer.max_steps=9', 'output.name=new', cwd=self.dir))
        new = self.dir / 'runs/new/version_0'
        text = self.assertDone(npu_tool('compare', run / 'config.yaml', new / 'config.yaml'))
        self.assertTrue(text.startswith('no difference may change numbers'), text)
        self.assertDone(npu_tool('compare', run / 'metrics.csv', new / 'metrics.csv'))
        self.assertDone(npu_tool('compare', run / 'checkpoints/last', run / 'checkpoints/last'))

    def test_its_resolved_configuration_trains(self):
        config = self.earlier() / 'config.yaml'
        text = self.assertDone(train_app(config, '--print-config'))
        self.assertNotIn('dump:', text)  # the section was switched off
        self.assertDone(train_app(config, '--fast-dev-run', cwd=self.dir))


if __name__ == '__main__': main()
