"""Runs of a model from its configuration, which every model can do."""
import csv
import json
import re

from programs import contents, needs_sim_npu, npu_tool, run_dir, train_app

# How a small network of texts is trained: with EMA, and a loss scale that overflows at first.
RECIPE = '''
seed: 7
device: cpu
precision: {precision}
optimizer: {{name: adamw, lr: 0.005}}
lr_scheduler: {{name: cosine, interval: step, T_max: 40}}
grad_scaler: {{init_scale: 16777216, growth_interval: 5}}
average: {{enabled: true, decay: 0.9}}
trainer: {{max_epochs: 2, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}}
'''


def rows(out, phase):
    """Rows of metrics.csv under an output.dir with one run."""
    with open(run_dir(out) / 'metrics.csv') as file: return [row for row in csv.DictReader(file) if row['phase'] == phase]


def early_difference(out, other):
    """The mean relative difference of the first ten training losses of two runs.

    Later, chance decides: the last losses of two small networks may differ by a third through rounding alone, and by less with twice the
    learning rate.
    """
    pairs = zip(rows(out, 'train')[:10], rows(other, 'train')[:10], strict=True)
    return sum(abs(float(a['loss']) / float(b['loss']) - 1) for a, b in pairs) / 10


def assert_rounding_apart(test, out, other, bound):
    """The early losses of a run in low precision and of one in fp32 differ, and by less than the bound."""
    difference = early_difference(out, other)
    test.assertLess(difference, bound, out)
    test.assertGreater(difference, 0, out)


def assert_dumps_agree(test, *args):
    """Runs of test.train() on the CPU and on the simulated NPU have dumps without a difference."""
    for device in ('cpu', 'sim_npu'): test.train(device, f'device={device}', 'rng=portable', 'trainer.max_steps=3', *args, f'dump.dir={test.dir}/dump_{device}')
    found = json.loads(test.assertDone(npu_tool('compare', test.dir / 'dump_cpu', test.dir / 'dump_sim_npu', '--json')))
    test.assertIsNone(found['first_divergence'])
    test.assertGreater(found['steps'][0]['compared'], 30)


def assert_trained_alike(test):
    """Checks the same without clipping, since the last bit of a norm depends on the device, and that the weights are equal."""
    assert_dumps_agree(test, 'trainer.gradient_clip_val=0')
    test.assertEqual(*(contents(test.dir / device)['model.safetensors'] for device in ('cpu', 'sim_npu')))


class ModelRuns:
    """Cases of a test that has text(precision), the path of a configuration, and `rounding`: the largest early_difference of bf16 and fp32."""
    def train(self, name, *args, precision='32-true'):
        return self.assertDone(train_app(self.text(precision), f'output.dir={self.dir}/{name}', *args))

    def assertProductsIn(self, precision):
        """Every layer that multiplies matrices computes in the dtype of the precision."""
        said = self.assertDone(train_app(self.text(precision), '--print-precision'))
        products = re.findall(r'^  (\S+): \{op: (?:linear|conv2d), computes: (\w+), parameters: (\w+)\}', said, re.M)
        self.assertGreater(len(products), 20)
        dtypes = {'16-mixed': ('fp16', 'fp32'), 'bf16-mixed': ('bf16', 'fp32'), 'bf16-true': ('bf16', 'bf16')}[precision]
        for name, *found in products: self.assertEqual((name, *found), (name, *dtypes))

    def test_low_precisions_learn_and_16_mixed_skips(self):
        self.train('full')
        for precision in ('16-mixed', 'bf16-mixed', 'bf16-true'):
            self.train(precision, precision=precision)
            first, *_, last = (float(row['loss']) for row in rows(self.dir / precision, 'val'))
            self.assertLess(last, first, precision)
            self.assertProductsIn(precision)
            if precision == '16-mixed': continue  # its first steps are skipped
            assert_rounding_apart(self, self.dir / precision, self.dir / 'full', self.rounding)
        skipped = sum(row['skipped'] == '1' for row in rows(self.dir / '16-mixed', 'train'))
        self.assertTrue(0 < skipped < 15, skipped)

    def test_resume_bit_for_bit(self):
        for precision in ('32-true', '16-mixed'):
            self.assertIn('bit for bit', self.assertDone(train_app(self.text(precision), '--verify-resume', '--verify-steps', '6')))

    @needs_sim_npu
    def test_dumps_of_the_cpu_and_of_sim_npu_agree(self): assert_dumps_agree(self)


class TextRuns:
    """Cases of a test that has train(name, *args), and `changed`: two networks of which the attention of the first block differs."""
    @needs_sim_npu
    def test_sim_npu_trains_as_the_cpu_does_and_dumps_agree(self): assert_trained_alike(self)

    def test_a_changed_layer_is_found_by_comparison(self):
        for name, change in zip('ab', self.changed): self.train(name, change, 'trainer.max_steps=1', 'checkpoint.enabled=false', f'dump.dir={self.dir}/dump_{name}')
        code, said, error = npu_tool('compare', self.dir / 'dump_a', self.dir / 'dump_b', '--json')
        self.assertEqual(code, 7, error)
        self.assertIn('blocks.0.attention', json.dumps(json.loads(said)['first_divergence']))
