"""npu_tool compare --sample: healthy runs agree whatever is drawn, and a fault in a drawn layer is found."""
import json
import shutil

from programs import ProgramTest, in_full, main, needs_sim_npu, npu_tool, train_app

IMAGES = 'data: {name: generated, image_size: 32, train_size: 32, val_size: 8, batch_size: 8, num_workers: 0}'
TEXT = '{name: language_model}'
CONFIG = '''
precision: 32-true
model: %s
%s
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
trainer: {threads: 1, max_steps: 2, limit_val_batches: 0}
checkpoint: {enabled: false}
output: {dir: ""}
'''
PAIRS = {'resnet18': ('{name: resnet18, num_classes: 10, image_size: 32}', IMAGES),
         'resnet50': ('{name: resnet50, num_classes: 10, image_size: 32, stem: small}', IMAGES),
         'vit': ('{name: vit_tiny_cifar10, depth: 2, dim: 64, heads: 2}', IMAGES),
         'gpt2': ('{name: gpt2_tiny, layers: 2, dim: 64}', f'data: {{name: generated_text, context: 32, batch_size: 8}}\ntask: {TEXT}')}


@needs_sim_npu
class CompareSample(ProgramTest):
    def pair(self, name):
        """Dumps of two devices, which differ in rounding."""
        config = self.config(CONFIG % PAIRS[name])
        for device in ('cpu', 'sim_npu'): self.assertDone(train_app(config, f'device={device}', f'dump.dir={self.dir}/{name}_{device}', cwd=self.dir))
        return self.dir / f'{name}_sim_npu', self.dir / f'{name}_cpu'

    def compare(self, a, b, *words):
        code, out, error = npu_tool('compare', a, b, '--json', *words)
        self.assertTrue(out, error)
        return code, json.loads(out)

    def changed(self, dump, name, layer, step, sides, times):
        """A copy of a dump in which, in one step, the values of a layer on these sides of its forward are multiplied by `times`."""
        copy = dump.with_name(f'{dump.name}_{name}')
        shutil.copytree(dump, copy)
        path = copy / f'step{step}/rank0/dump.json'
        document = json.loads(path.read_text())
        (call,) = (n for n in document['data'] if n.startswith(f'Module.{layer}.') and n.endswith('.forward.0'))
        for side in sides:
            for key in ('Max', 'Min', 'Mean', 'Norm'): document['data'][call][side][0][key] *= times
        path.write_text(json.dumps(document))
        return copy

    def check(self, name, layer, seeds):
        a, b = self.pair(name)
        fault = self.changed(a, 'fault', layer, 0, ('output',), 1.02)  # its inputs and weights are the same
        drawn = 0
        for seed in seeds:
            sample = ('--sample', '0.1', '--seed', seed)
            code, result = self.compare(a, b, *sample)
            self.assertEqual(code, 0, f'{name}, seed {seed}: ' + result['summary'] + json.dumps(result['first_divergence']))
            self.assertEqual(result['judged'], 1, f'{name}, seed {seed}: ' + result['summary'])
            layers = {c['layer'] for step in result['steps'] for c in step['calls']}
            code, result = self.compare(fault, b, *sample)
            found = result['first_divergence'] or {}
            self.assertEqual(code, 7 if layer in layers else 0, f'{name}, seed {seed}: ' + result['summary'])
            if layer not in layers: continue
            drawn += 1
            self.assertEqual((found['layer'], found['step'], found['cause']), (layer, 0, 'layer'), f'{name}, seed {seed}: ' + found['sentence'])
            # The calls that prove it are read together with it.
            self.assertLessEqual({'forward', 'backward', 'parameters_grad'}, {c['direction'] for c in result['steps'][0]['calls'] if c['layer'] == layer})
        self.assertGreater(drawn, 0, 'the layer of the fault was in no sample')

    def test_a_resnet(self): self.check('resnet18', 'layer3.0.conv1', range(8))

    def test_an_optimizer_is_no_layer(self):
        """Seed 72 draws no layer, and a number for the optimizer that is smaller than those of all layers."""
        a, b = self.pair('vit')
        self.assertEqual(self.compare(a, b, '--sample', '0.1', '--seed', 72)[0], 0)

    def test_the_smallest_sample_has_a_layer(self):
        a, b = self.pair('gpt2')
        for seed in range(3):
            code, result = self.compare(a, b, '--sample', '0.000001', '--seed', seed)
            self.assertEqual(code, 0, result['summary'])
            self.assertEqual(len({c['layer'] for c in result['steps'][0]['calls'] if not c['layer'].startswith('optimizer')}), 1)

    @in_full
    def test_four_networks_and_a_hundred_seeds(self):
        for name, layer in (('resnet18', 'layer2.0.conv1'), ('resnet50', 'layer3.2.conv2'), ('vit', 'encoder.layers.encoder_layer_1.mlp.0'), ('gpt2', 'blocks.1.mlp.fc1')):
            with self.subTest(name): self.check(name, layer, range(100))

    def test_a_fused_norm_without_a_later_layer_is_not_judged(self):
        """Seed 1 draws layer4.0.bn1, which only the CPU fuses, and with it the last layer, which proves the norm. --layers compares the
        norm alone."""
        norm = 'layer4.0.bn1'
        a, b = self.pair('resnet18')
        code, result = self.compare(a, b, '--sample', '0.1', '--seed', 1, '--strict')
        self.assertEqual((code, result['judged']), (0, 1), result['summary'])
        self.assertLessEqual({norm, 'head'}, {c['layer'] for c in result['steps'][0]['calls']})
        code, result = self.compare(a, b, '--layers', norm)
        self.assertEqual(code, 0, result['summary'])
        open_values = sum(step['not_judged'] for step in result['steps'])
        self.assertEqual(result['judged'], 1 - open_values / sum(step['compared'] for step in result['steps']))
        self.assertGreater(open_values, 0)
        self.assertIn(f'1 layer cannot be proven in this part (see the notes); {open_values} values could not be judged', result['summary'])
        code, result = self.compare(a, b, '--layers', norm, '--strict')
        self.assertEqual(code, 7, result['summary'])
        self.assertIn(f'{norm} (BatchNorm2d, forward, step 0) differs by', result['first_divergence']['sentence'])

    def test_what_cannot_be_judged_counts_with_strict(self):
        """In a later step, a difference enters with the input of a drawn layer, so calls outside the sample caused it."""
        layer = 'layer3.0.conv1'
        a, b = self.pair('resnet18')
        a = self.changed(a, 'outside', layer, 1, ('input_args', 'output'), 1.5)
        for seed, drawn in ((0, True), (1, False)):
            sample = ('--sample', '0.1', '--seed', seed)
            code, result = self.compare(a, b, *sample)
            self.assertEqual(code, 0, result['summary'])
            self.assertEqual(layer in {c['layer'] for c in result['steps'][1]['calls']}, drawn, 'another seed draws the layer')
            self.assertEqual([step['not_judged'] for step in result['steps']], [0, 2 * drawn])
            self.assertEqual(drawn, '2 values could not be judged' in result['summary'], result['summary'])
            self.assertEqual(drawn, result['judged'] < 1)
            self.assertEqual(self.compare(a, b, *sample, '--strict')[0], 7 * drawn)


if __name__ == '__main__': main()
