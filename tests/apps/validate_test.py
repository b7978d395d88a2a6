"""npu_tool validate: a device or a precision against another one, with its JSON and its exit codes."""
import json

from programs import ProgramTest, SMALL, main, npu_tool

USAGE, DEVICE, CHECK_FAILED = 2, 4, 7
SHORT = ('data.val_size=28', 'data.batch_size=8', 'grad_scaler={}')
CHECKS = ['outputs', 'layers', 'batch of 1', 'last partial batch', 'zeros', 'large values', 'gradients', 'optimizer step', 'short training run',
          'evaluation after training']


class Validate(ProgramTest):
    def validate(self, *args, precision='32-true'):
        return npu_tool('validate', self.config(SMALL.format(precision=precision, workers=0)), *SHORT, *args)

    def passed(self, *args, **kw):
        document = json.loads(self.assertDone(self.validate(*args, '--json', **kw)))
        self.assertTrue(document['all_passed'])
        self.assertEqual(document['pass_rate'], 1)
        self.assertEqual([c['name'] for c in document['checks']], CHECKS)
        return document

    def test_the_simulated_npu_against_the_cpu_in_both_ways_of_overflow(self):
        for soc, saturates in (('910A', True), ('910B1', False)):
            same = self.passed('--device', 'sim_npu', f'sim_npu.soc={soc}')
            self.assertEqual((same['judged']['device'], same['judged']['saturates']), ('sim_npu:0', saturates))
            self.assertEqual(same['reference']['device'], 'cpu')
            self.assertEqual((same['max_max_diff'], same['avg_max_diff'], same['avg_mean_diff']), (0, 0, 0))
            self.assertEqual(same['tolerance']['rtol'], 1e-5)
            mixed = self.passed('--device', 'sim_npu', f'sim_npu.soc={soc}', '--precision', '16-mixed')
            self.assertGreater(mixed['max_max_diff'], 0)
            self.assertEqual((mixed['judged']['precision'], mixed['reference']['precision']), ('16-mixed', '32-true'))

    def test_two_forms_of_a_model(self):
        forms = ('--device', 'cpu', 'model.qkv=split', 'model.dropout=0', 'data={name: image_folder, root: nowhere, image_size: 32}', '--forms-batch', '4', '--forms-pairs', '6', '--json')
        document = json.loads(self.assertDone(self.validate(*forms, '--b', 'model.qkv=fused', '--out', self.dir / 'forms.json', '--forms-batches', '2')))
        self.assertTrue(document['all_passed'])
        self.assertEqual(document, json.loads((self.dir / 'forms.json').read_text()))
        self.assertLess(document['max_diff'], 1e-4)
        self.assertLessEqual(document['mean_diff'], document['max_diff'])
        self.assertEqual(document['input'], [4, 3, 32, 32])
        self.assertEqual(len(document['converted']), 6)  # q, k and v of one block
        self.assertEqual(len(document['epochs']), 3)
        self.assertLess(document['epochs'][2]['form'], document['epochs'][0]['form'])
        for epoch in document['epochs']: self.assertLess(abs(epoch['form'] - epoch['original']), 0.01 * epoch['original'])
        again = json.loads(self.assertDone(self.validate(*forms, '--b', 'model.qkv=fused', '--forms-batches', '2')))
        for key in ('max_diff', 'mean_diff', 'epochs'): self.assertEqual(again[key], document[key])
        self.assertAlmostEqual(document['speed_up'], document['original_ms'] / document['form_ms'])
        text = self.assertDone(self.validate(*forms[:-1], '--b', 'model.qkv=fused', '--forms-epochs', '0'))
        for word in ('6 converted', 'time, ms', 'the forms agree'): self.assertIn(word, text)
        other = self.validate(*forms, '--b', 'model.qkv=fused', '--b', 'model.gelu=tanh', '--forms-epochs', '0', '--forms-limit', '1e-6')
        self.assertEqual(other[0], CHECK_FAILED, other[2])
        self.assertIn('different GELUs', other[1])
        self.assertFails(self.validate(*forms, '--b', 'model.qkv=fused', '--b', 'model.dim=48'), 6, 'weights')
        fast = (*forms, '--b', 'model.qkv=fused', '--forms-epochs', '0')
        for precision, flags, sides in (('auto', (), ('32-true', '32-true')), ('32-true', ('--precision', 'bf16-mixed'), ('bf16-mixed', 'bf16-mixed')),
                                        ('bf16-mixed', ('--precision', '32-true'), ('32-true', '32-true')),
                                        ('auto', ('--precision', 'bf16-mixed', '--against-precision', '32-true'), ('bf16-mixed', '32-true'))):
            with self.subTest(precision, flags=flags):
                code, out, err = self.validate(*fast, *flags, precision=precision)
                document = json.loads(out)
                self.assertEqual((document['form']['precision'], document['original']['precision']), sides, err)
                self.assertEqual(code, 0 if document['all_passed'] else CHECK_FAILED, err)
                self.assertEqual(document['layers_agree'] and document['outputs_agree'], 'bf16' not in ' '.join(document['notes']))
                if sides == ('32-true', '32-true'): self.assertTrue(document['all_passed'])
                else: self.assertLess(document['max_diff'], 0.05 * document['reference_max'])  # bf16 rounds by up to 1/256
        self.assertFails(self.validate(*forms, '--b', 'nonsense'), USAGE, 'nonsense', 'KEY=VALUE')
        self.assertFails(self.validate(*forms, '--b', 'model.qvk=fused'), USAGE, 'qvk')

    def test_images_and_learning_rate_of_the_forms(self):
        resnet = ('--device', 'cpu', 'model={name: resnet18, num_classes: 10}', '--forms', '--b', 'model.fused_kernels=false')
        few = ('--forms-batch', '2', '--forms-pairs', '6', '--forms-epochs', '2', '--forms-batches', '1', '--json')
        document = json.loads(self.assertDone(self.validate(*resnet, *few, '--forms-image', '40', '--forms-lr', '1e-30')))
        self.assertEqual(document['input'], [2, 3, 40, 40])
        self.assertEqual(*document['epochs'])  # the step is so small that no weight changes

    def test_one_key_of_one_side(self):
        document = self.passed('--device', 'cpu', '--b', 'model.fused_kernels=false', '--samples', '8', '--train-steps', '1')
        self.assertEqual(document['judged'], document['reference'])
        self.assertFails(self.validate('--device', 'cpu'), USAGE, 'nothing to compare', '--b KEY=VALUE')
        self.passed('--device', 'cpu', '--a', 'precision=bf16-mixed', '--samples', '8', '--train-steps', '1', '--layer-names', '*mlp.0')

    def test_convolutions_in_both_ways_of_overflow(self):
        resnet = ('model={name: resnet18, stem: imagenet}', '--samples', '10', '--train-steps', '1', '--json')
        for soc in ('910A', '910B1'):
            device = ('--device', 'sim_npu', f'sim_npu.soc={soc}', '--precision', '16-mixed', '--against-precision', '16-mixed')
            document = json.loads(self.assertDone(self.validate(*device, *resnet)))
            self.assertTrue(document['all_passed'])
            self.assertEqual({layer['type'] for layer in document['layers']}, {'Conv2d', 'Linear'})
            self.assertIn('running statistics', [c['name'] for c in document['checks']])

    def test_an_overflow_shows_on_either_kind_of_device(self):
        for soc, words in (('910A', 'status flag'), ('910B1', 'overflows')):
            large = self.passed('--device', 'sim_npu', f'sim_npu.soc={soc}', '--precision', '16-mixed', '--large', '1e6', '--train-steps', '1')
            self.assertIn(words, large['checks'][5]['note'], soc)

    def test_precisions_of_one_device(self):
        document = self.passed('--device', 'cpu', '--precision', 'bf16-mixed', '--samples', '20', '--layers-every', '5', '--layer-types', 'Linear,LayerNorm')
        self.assertEqual(document['samples'], 20)
        self.assertEqual({layer['type'] for layer in document['layers']}, {'Linear', 'LayerNorm'})
        for layer in document['layers']:
            self.assertGreaterEqual(layer['max_diff'], layer['mean_diff'])
            self.assertEqual(layer['shape'][0], 1)
        self.assertIn('bf16', document['tolerance']['source'])
        self.assertGreater(len(document['gradients']), 10)
        self.assertEqual(len(document['losses']['judged']), 6)
        same = ('--device', 'cpu', '--samples', '8', '--train-steps', '1', '--against-cpu-low-precision', 'native', '--cpu-low-precision', 'emulated')
        document = self.passed(*same, precision='bf16-mixed')
        self.assertEqual((document['judged']['emulated'], document['reference']['emulated']), (True, False))

    def test_what_fails_ends_with_its_code_and_says_where(self):
        strict = ('--device', 'cpu', '--precision', 'bf16-mixed', '--rtol', '0', '--atol', '0', '--noise', '0')
        result = self.validate(*strict, '--out', self.dir / 'v.json')
        self.assertEqual(result[0], CHECK_FAILED, result[1] + result[2])
        self.assertIn('validation FAILED: the first layer that differs is conv_proj', result[1])
        document = json.loads((self.dir / 'v.json').read_text())
        self.assertFalse(document['all_passed'])
        self.assertEqual(document['pass_rate'], 0)
        self.assertEqual((document['first_flagged'], document['tolerance']['rtol']), ('conv_proj', 0))
        # A layer is flagged if it differs by more than the given difference, which here is the median of the layers.
        given = sorted(row['max_diff'] for row in document['layers'])[len(document['layers']) // 2]
        again = json.loads(self.validate(*strict, '--flag-above', repr(given), '--train-steps', '1', '--json')[1])
        for row, before in zip(again['layers'], document['layers'], strict=True):
            self.assertEqual((row['name'], row['max_diff'], row['allowed']), (before['name'], before['max_diff'], given))
            self.assertEqual(row['flagged'], row['max_diff'] > given, row)
        self.assertEqual(len({row['flagged'] for row in again['layers']}), 2)

    def test_for_people(self):
        text = self.assertDone(self.validate('--device', 'sim_npu'))
        for word in ('judged:    sim_npu:0, 32-true', 'reference: cpu, 32-true', 'short training run', 'validation passed'): self.assertIn(word, text)

    def test_operators(self):
        page = self.dir / 'operators.html'
        found = json.loads(self.assertDone(self.validate('--device', 'sim_npu', '--operators', '--json', '--html', page)))
        self.assertEqual((found['passed'], found['wrong'], found['fail'], found['not_compared']), (True, 0, 0, 0))
        rows = {row['name']: row for row in found['operators']}
        for name in ('conv2d', 'linear', 'layer_norm', 'gelu', 'scaled_dot_product_attention'):
            self.assertEqual((rows[name]['verdict'], rows[name]['error'] <= rows[name]['allowed']), ('agrees', True), rows[name])
            self.assertIn(f'>{name}<', page.read_text())
        self.assertGreater(rows['linear']['cpu_error'], 1e-8)  # shows that an fp64 judge finds rounding
        self.assertIn(f'operators of a step, each alone on sim_npu:0 in 32-true: {found["agree"]} agree, 0 are wrong', self.assertDone(self.validate('--device', 'sim_npu', '--operators')))
        self.assertFails(self.validate('--device', 'cpu', '--operators'), USAGE, 'which is the reference')
        for other in ('--forms',), ('--against', 'npu'), ('--rtol', '1'), ('--samples', '3'), ('--b', 'seed=1'):
            self.assertFails(self.validate('--device', 'sim_npu', '--operators', *other), USAGE, other[0])

    def test_usage(self):
        self.assertFails(self.validate('--device', 'cpu'), USAGE, 'nothing to compare', '--against')
        self.assertFails(self.validate(), USAGE, '--device')
        self.assertFails(self.validate('--device', 'tpu'), USAGE, 'tpu', 'sim_npu')
        self.assertFails(self.validate('--device', 'sim_npu', '--samples', '0'), USAGE, 'samples')
        self.assertFails(self.validate('--device', 'sim_npu', '--layer-types', 'Lineer'), USAGE, 'Lineer', 'Linear')
        self.assertFails(self.validate('--device', 'sim_npu', '--precision', 'fp8'), USAGE, 'fp8')
        self.assertFails(npu_tool('validate', '--device', 'sim_npu'), USAGE, 'CONFIG')
        self.assertFails(self.validate('--device', 'sim_npu:3'), DEVICE, 'sim_npu:3')


if __name__ == '__main__': main()
