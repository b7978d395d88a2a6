"""npu_tool analyze CONFIG: operators of a step looked up for an NPU, and a model tried on a device."""
import csv
import json
import os
import subprocess
import unittest

import browser
from images import png
from programs import BIN, SOURCE, ProgramTest, in_full, main, npu_tool

USAGE, DATA, DISK, CHECK_FAILED = 2, 3, 6, 7
# Hours that a migration of each shipped configuration takes, whatever kernels this CPU has for its operators.
HOURS = {'bert_tiny': 4.5, 'clip_tiny': 1.0, 'glm_tiny': 5.5, 'gpt2_tiny': 4.5, 'internvl_tiny': 5.5, 'llama_tiny': 4.0, 'quickstart': 0.5, 'qwen2_tiny': 4.0, 'resnet50_cifar10': 0.5,
         'resnet50_cifar10_224': 0.5, 'resnet50_imagefolder': 0.5, 'vit_b16_imagefolder': 2.0, 'vit_tiny_cifar10': 0.5}
CPUS = {'this one': {}, 'with AVX2': {'ATEN_CPU_CAPABILITY': 'avx2', 'ONEDNN_MAX_CPU_ISA': 'AVX2'},
        'without AVX2': {'ATEN_CPU_CAPABILITY': 'default', 'ONEDNN_MAX_CPU_ISA': 'SSE41'}}


class Analyze(ProgramTest):
    def analyze(self, *args, precision='32-true'): return npu_tool('analyze', self.config(precision=precision), *args, cwd=self.dir)

    def test_operators_of_a_step(self):
        result = self.analyze('--json', precision='16-mixed')
        self.assertDone(result)
        found = json.loads(result[1])
        self.assertEqual((found['soc'], found['torch'], found['verdict']), ('Ascend910B1', '2.11', 'ready'))
        phases = {op['phase'] for op in found['operators']}
        self.assertLessEqual({'forward', 'backward', 'unscale', 'optimizer'}, phases)
        self.assertIn('to fp16', {op['autocast'] for op in found['operators']})
        self.assertAlmostEqual(sum(op['share'] for op in found['operators']), 1, delta=1e-6)
        self.assertNotIn('alignment', {f['kind'] for f in found['findings']})  # the data set gives ten classes
        self.assertEqual(list(self.dir.iterdir()), [self.dir / 'c.yaml'])  # no file was written

    def check_hours(self, names, cpus):
        text, image = self.dir / 'text.txt', '{name: generated, image_size: 224, batch_size: 2}'
        text.write_text('the dog sees a tree. ' * 400)
        self.assertDone(npu_tool('tokenize', text, '--to', self.dir / 'docs'))
        data = {'bert_tiny': f'data={{name: documents, train: {self.dir}/docs/train.bin, val: {self.dir}/docs/val.bin, context: 64, batch_size: 2, long_documents: split}}',
                'resnet50_imagefolder': f'data={image}', 'vit_b16_imagefolder': f'data={image}', 'clip_tiny': f'data={{name: image_text, root: {self.captions()}, val: val.jsonl, image_size: 32, context: 64, vocab_size: 256, batch_size: 2}}'}
        for name in names:
            for cpu in cpus:
                with self.subTest(name, cpu=cpu):
                    result = npu_tool('analyze', SOURCE / f'configs/{name}.yaml', '--soc', '910B1', '--json', data.get(name, 'data.batch_size=2'), cwd=self.dir,
                                      env={**os.environ, **CPUS[cpu]})
                    found = json.loads(self.assertDone(result))
                    self.assertEqual(found['hours'], HOURS[name], [(f['kind'], f['subject'], f['hours']) for f in found['findings']])
                    self.assertNotIn('mkldnn', ''.join(f['detail'] for f in found['findings']))  # these are kernels of the CPU, which a chip does not call

    def captions(self):
        """A folder of images with captions."""
        folder = self.dir / 'captions'
        folder.mkdir(exist_ok=True)
        for i in range(4): png(folder / f'{i}.png', 32, (i, i, i))
        for name in ('train', 'val'):
            (folder / f'{name}.jsonl').write_text(''.join(json.dumps({'image': f'{i}.png', 'text': f'image {i}'}) + '\n' for i in range(4)))
        return folder

    def test_kernels_of_the_cpu_cost_nothing(self): self.check_hours(('gpt2_tiny', 'vit_tiny_cifar10'), ('this one',))

    @in_full
    def test_the_hours_of_every_shipped_configuration_on_every_cpu(self):
        self.assertEqual(sorted(HOURS), sorted(path.stem for path in (SOURCE / 'configs').glob('*.yaml')))
        self.check_hours(HOURS, CPUS)

    def test_text_and_page(self):
        result = self.analyze('--soc', '910A', '--html', self.dir / 'page.html', '--rows', '4', precision='bf16-mixed')
        self.assertDone(result)
        self.assertIn('(4 of ', result[1])
        self.assertIn('this chip multiplies no bf16', result[1])
        self.assertIn('Ascend910A, torch_npu 2.11: feasible, with changes', result[1])
        page = (self.dir / 'page.html').read_text()
        self.assertIn('Ascend910A', page)

    def test_a_card_and_the_operators_that_it_does_not_support(self):
        """A training that is larger than the card is sharded; the table has the operators of the model's step."""
        out = self.dir / 'unsupported_operators.csv'
        found = json.loads(self.assertDone(self.analyze('--soc', 'Atlas 300I/V Pro', '--unsupported', out, '--json')))
        self.assertEqual((found['soc'], found['hbm'], found['sharded_with']), ('Ascend310P3', 24 << 30, ''))
        self.assertIn('24 or 48 GiB: 24 are assumed', next(f['detail'] for f in found['findings'] if f['kind'] == 'series'))
        self.assertEqual({f['done_by'] for f in found['findings']} - {'automatic', 'tool', 'hand'}, set())
        columns, *rows = csv.reader(out.read_text().splitlines())
        named = [f['subject'] for f in found['findings'] if f['kind'] in ('unsupported', 'custom', 'cpu_fallback', 'unknown')]
        self.assertEqual([row[0] for row in rows], named)
        self.assertEqual(columns, ['operator', 'support', 'count', 'where', 'action', 'done_by', 'hours'])
        self.assertFails(self.analyze('--soc', 'Atlas 300X'), USAGE, "'Atlas 300X'", 'Atlas 300I Duo')

    @unittest.skipIf(browser.find() is None, 'no chromium or google-chrome on this machine: the page was not opened')
    def test_the_page_in_a_browser(self):
        self.assertDone(self.analyze('--html', self.dir / 'page.html'))
        with browser.Browser() as tab:
            for width in (400, 800, 1280):
                tab.open(self.dir / 'page.html', width)
                self.assertLessEqual(tab.run('document.documentElement.scrollWidth'), width)
            self.assertEqual(tab.problems, [])

    def test_a_model_is_tried_on_a_device(self):
        result = self.analyze('--try', 'sim_npu', '--json')
        self.assertDone(result)
        found = json.loads(result[1])
        self.assertTrue(found['passed'])
        self.assertEqual({t['verdict'] for t in found['trials'] if t['name'] != 'speed'}, {'passed'})
        speed = next(t for t in found['trials'] if t['name'] == 'speed')
        self.assertEqual((speed['verdict'], found['speed_up']), ('not judged', -1))
        self.assertIn('computes on this CPU', speed['detail'])
        result = self.analyze('--try', 'sim_npu', 'sim_npu.hbm=64KiB')
        self.assertEqual(result[0], CHECK_FAILED, result[2])
        self.assertIn('failed (out_of_memory)', result[1])
        result = self.analyze('--try', 'npu')
        self.assertEqual(result[0], CHECK_FAILED, result[2])
        self.assertIn('failed (environment)', result[1])
        self.assertIn('npu_tool doctor', result[1])

    def test_a_run_for_a_device_that_is_not_here(self):
        for device in ('npu', 'cuda'):
            result = self.analyze(f'device={device}', '--soc', '910b', '--rows', '3', precision='auto')
            self.assertDone(result)
            self.assertIn('note: precision auto: bf16-mixed', result[1])
            self.assertIn('910B is a series (Atlas A2): taken for a 910B1', result[1])
            self.assertIn('Ascend910B1, torch_npu 2.11: ready to try', result[1])

    def test_a_full_disk_is_told(self):
        for args in (('analyze', self.config()), ('summary', '--model', 'resnet18', '--num-classes', '10'), ('doctor', '--explain', '507018'),
                     ('doctor', '--explain', '507018', '--json'), ('analyze', '--source', self.dir), ('--version',), ('--help',), ('analyze', '--help')):
            with open('/dev/full', 'w') as full:
                p = subprocess.run([str(BIN / 'npu_tool'), *map(str, args)], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(p.returncode, DISK, (args, p.stderr))
            self.assertIn('No space left on device', p.stderr, args)

    def test_options_that_do_not_go_together(self):
        config = self.config()
        for args in (('--source', self.dir, '--soc', '910B1'), ('--source', self.dir, '--try', 'cpu'), ('--source', self.dir, '--torch', '2.11'),
                     (config, '--source', self.dir), (config, '--try', 'cpu', '--soc', '910B1'), (config, '--try', 'cpu', '--unsupported', 'u.csv'), (config, '--try', 'cpu', '--html', 'p.html'),
                     (config, '--rewrite', self.dir / 'out'), (config, '--csv', 'c.csv')):
            result = npu_tool('analyze', *args, cwd=self.dir)
            self.assertEqual(result[0], USAGE, (args, result))
            self.assertRegex(result[2], 'excludes|requires', args)

    def test_mistakes(self):
        self.assertFails(self.analyze('--try', 'auto'), USAGE, 'a device by name')
        for soc in ('910', '910x', 'nonsense'): self.assertFails(self.analyze('--soc', soc), USAGE, f"'{soc}'", 'the series 910B', '310P')
        self.assertFails(npu_tool('analyze'), USAGE, 'CONFIG.yaml', '--source DIR')
        self.assertFails(self.analyze('--soc', 'H100'), USAGE, "'H100'", '910B1')
        self.assertFails(self.analyze('--torch', '1.8'), USAGE, "'1.8'", '2.11 to 2.13')
        self.assertFails(self.analyze('--try', 'tpu'), USAGE, 'tpu')
        self.assertDone(self.analyze('data={name: cifar10, root: /nowhere}'))  # only the shapes of the data are needed


if __name__ == '__main__': main()
