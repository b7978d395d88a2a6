"""npu_tool analyze CONFIG: operators of a step looked up for an NPU, and a model tried on a device."""
import json
import unittest

import browser
from programs import ProgramTest, main, npu_tool

USAGE, DATA, CHECK_FAILED = 2, 3, 7


class Analyze(ProgramTest):
    def analyze(self, *args, precision='32-true'): return npu_tool('analyze', self.config(precision=precision), *args, cwd=self.dir)

    def test_operators_of_a_step(self):
        result = self.analyze('--json', precision='16-mixed')
        self.assertDone(result)
        found = json.loads(result[1])
        self.assertEqual((found['soc'], found['torch'], found['verdict']), ('Ascend910B1', '2.11', 'ready'))
        phases = {op['phase'] for op in found['operators']}
        self.assertEqual(phases, {'forward', 'backward', 'optimizer'})
        self.assertIn('to fp16', {op['autocast'] for op in found['operators']})
        self.assertAlmostEqual(sum(op['share'] for op in found['operators']), 1, delta=1e-6)
        self.assertIn('alignment', {f['kind'] for f in found['findings']})
        self.assertEqual(list(self.dir.iterdir()), [self.dir / 'c.yaml'])  # nothing is written

    def test_text_and_page(self):
        result = self.analyze('--soc', '910A', '--html', self.dir / 'page.html', '--rows', '4', precision='bf16-mixed')
        self.assertDone(result)
        self.assertIn('(4 of ', result[1])
        self.assertIn('this chip multiplies no bf16', result[1])
        self.assertIn('Ascend910A, torch_npu 2.11: feasible, with changes', result[1])
        page = (self.dir / 'page.html').read_text()
        self.assertIn('Ascend910A', page)

    @unittest.skipIf(browser.find() is None, 'no chromium or google-chrome on this machine: the page was not opened')
    def test_the_page_in_a_browser(self):
        self.assertDone(self.analyze('--html', self.dir / 'page.html'))
        with browser.Browser() as tab:
            for width in (390, 1280):
                tab.open(self.dir / 'page.html', width)
                self.assertLessEqual(tab.run('document.documentElement.scrollWidth'), width)
            self.assertEqual(tab.problems, [])

    def test_a_model_is_tried_on_a_device(self):
        result = self.analyze('--try', 'sim_npu', '--json')
        self.assertDone(result)
        found = json.loads(result[1])
        self.assertTrue(found['passed'])
        self.assertEqual({t['verdict'] for t in found['trials']}, {'passed'})
        result = self.analyze('--try', 'sim_npu', 'sim_npu.hbm=64KiB')
        self.assertEqual(result[0], CHECK_FAILED, result[2])
        self.assertIn('failed (out_of_memory)', result[1])
        result = self.analyze('--try', 'npu')
        self.assertEqual(result[0], CHECK_FAILED, result[2])
        self.assertIn('failed (environment)', result[1])
        self.assertIn('npu_tool doctor', result[1])

    def test_mistakes(self):
        self.assertFails(npu_tool('analyze'), USAGE, 'CONFIG.yaml', '--source DIR')
        self.assertFails(self.analyze('--soc', 'H100'), USAGE, "'H100'", '910B1')
        self.assertFails(self.analyze('--torch', '1.8'), USAGE, "'1.8'", '2.11 to 2.13')
        self.assertFails(self.analyze('--try', 'tpu'), USAGE, 'tpu')
        self.assertFails(self.analyze('data={name: cifar10, root: /nowhere}'), DATA, '/nowhere')


if __name__ == '__main__': main()
