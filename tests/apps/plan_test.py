"""npu_tool plan: what many ranks would do, from given speeds and from measured steps."""
import json

from programs import SIM_NPU, SOURCE, ProgramTest, main, npu_tool

USAGE, DATA, CHECK_FAILED = 2, 3, 7
POINTS = SOURCE / 'tests' / 'fixtures' / 'plan_points.csv'  # written by benchmarks/plan_points.py with MEASURED, on 2 cores
MEASURED = '''
device: cpu
precision: 32-true
model: {name: vit_tiny_cifar10}
data: {name: generated, image_size: 32, batch_size: 13, num_workers: 0}
optimizer: {name: adamw, lr: 0.001}
dist: {bucket_mib: 2}
'''
CONFIG = '''
device: cpu
precision: 32-true
model: {name: vit_tiny, image_size: 32, patch_size: 8, depth: 2, dim: 96, heads: 3}
data: {name: generated, train_size: 64, val_size: 8, batch_size: 16, num_workers: 0}
optimizer: {name: adamw, lr: 0.001}
'''
GIVEN = ('--ranks', '1,2,8', '--link', '10GB/s,5us', '--peak', '10TFLOPs')
HEAD = 'ranks,link,strategy,load,seconds,use\n'


def at(steps, ranks, strategy): return next(s for s in steps if (s['ranks'], s['strategy']) == (ranks, strategy))


class Plan(ProgramTest):
    def plan(self, *args): return npu_tool('plan', self.config(CONFIG), *args, cwd=self.dir)

    def planned(self, *args):
        result = self.plan(*args, '--json')
        self.assertDone(result)
        self.assertEqual(result[2], '')
        return json.loads(result[1])

    def points(self, text):
        (self.dir / 'points.csv').write_text(HEAD + text)
        return 'points.csv'

    def test_given_speeds(self):
        found = self.planned(*GIVEN)
        self.assertEqual([(s['ranks'], s['strategy']) for s in found['steps']],
                         [(1, 'single')] + [(n, s) for n in (2, 8) for s in ('ddp', 'zero1', 'zero2', 'zero3')])
        alone = found['steps'][0]
        # Forward and backward passes have three times the FLOPs of a forward pass, at 40 % of the peak.
        computed = 3 * found['flops_per_sample'] * 16 / (0.4 * 10e12)
        self.assertGreater(alone['compute_s'], computed)
        self.assertLess(alone['compute_s'], computed + 1e-4)  # the rest is the optimizer
        for n in (1, 2, 8):
            self.assertEqual(sum(s['best'] for s in found['steps'] if s['ranks'] == n), 1)
        for s in found['steps']:
            self.assertAlmostEqual(s['samples_per_s'], 16 * s['ranks'] / s['step_s'], delta=1e-6 * s['samples_per_s'])
            self.assertAlmostEqual(s['efficiency'], alone['step_s'] / s['step_s'], places=9)
            self.assertGreater(s['memory'], 1 << 20)
            self.assertEqual(s['extrapolation'], '')
        self.assertLessEqual(at(found['steps'], 8, 'zero3')['memory'], at(found['steps'], 8, 'ddp')['memory'])
        quick, optimizer = ('--no-memory', *GIVEN), alone['compute_s'] - computed
        for options, key, rate, expected in ((('--mfu', '0.8'), 'flops', 8e12, computed / 2 + optimizer),
                                             (('--memory-rate', '500GB/s'), 'memory', 5e11, computed + 2 * optimizer),
                                             (('--load', '2.5'), 'flops', 4e12, 2.5 * (computed + optimizer))):
            other = self.planned(*quick, *options)
            self.assertEqual(other['rates'], found['rates'] | {key: rate}, options)
            self.assertAlmostEqual(other['steps'][0]['compute_s'] / expected, 1, places=9, msg=options)
        slower = self.planned('--ranks', '8', '--link', '1GB/s,5us', *GIVEN[4:], '--no-memory')
        self.assertEqual({s['memory'] for s in slower['steps']}, {0})
        self.assertGreater(at(slower['steps'], 8, 'ddp')['step_s'], at(found['steps'], 8, 'ddp')['step_s'])
        self.assertEqual(list(self.dir.iterdir()), [self.dir / 'c.yaml'])  # no file was written

    def test_text(self):
        result = self.plan('--ranks', '8', *GIVEN[2:], '--memory', '64GB')
        self.assertDone(result)
        self.assertTrue(result[1].startswith('best with 8 ranks: '), result[1])
        for line in result[1].splitlines()[4:]: self.assertLessEqual(len(line), 80, line)
        for words in ('vit_tiny, batch 16 on each rank', 'link 10 GB/s, 5 us', 'efficiency', 'best'): self.assertIn(words, result[1])
        result = self.plan('--ranks', '2', *GIVEN[2:], '--memory', '1MB')
        self.assertEqual(result[0], CHECK_FAILED, result[2])
        self.assertIn('too large', result[1])
        self.assertIn('no strategy fits with 2 ranks', result[1])

    def test_groups(self):
        given = ('--ranks', '8,64', '--link', '10GB/s,1ms', '--local-link', '100GB/s,1us', '--per-machine', '8', *GIVEN[4:], '--no-memory')
        found = self.planned(*given)
        for n, size in ((8, 0), (64, 8)):
            best = next(s for s in found['steps'] if s['ranks'] == n and s['best'])
            self.assertEqual(best['group_size'], size)
        self.assertEqual(len(found['notes']), 1)
        self.assertIn('dist.group_size', found['notes'][0])
        text = self.plan(*given)
        self.assertDone(text)
        self.assertRegex(text[1], r'^best with 64 ranks: \w+( by 8)?, groups of 8, ')
        for line in text[1].splitlines():
            if line.startswith('   '): self.assertLessEqual(len(line), 80, line)
        without = self.planned(*given, 'dist.reduction=ordered')
        self.assertEqual({s['group_size'] for s in without['steps']}, {0})
        self.assertLess(next(s for s in found['steps'] if s['ranks'] == 64 and s['best'])['step_s'],
                        min(s['step_s'] for s in without['steps'] if s['ranks'] == 64))
        for value, size in (('4', 4), ('auto', 8)):
            self.assertEqual({s['group_size'] for s in self.planned(*given, f'dist.group_size={value}')['steps']}, {size})
        # Adds the memory of a rank.
        fits = self.planned('--ranks', '4', *GIVEN[2:], '--memory', '64GB', 'dist.preset=communication', 'dist.group_size=2')
        self.assertEqual([s['strategy'] for s in fits['steps']], ['ddp', 'zero1', 'zero2'])
        for s in fits['steps']: self.assertGreater(s['memory'], 1 << 20)

    def test_bytes_of_real_processes(self):
        for dist in (('dist.compression=topk:0.05+int8',), ('dist.group_size=2',), ('dist.group_size=2', 'dist.compression=int8'),
                     ('dist.group_size=2', 'dist.compression=powersgd:2')):
            options = ('dist.bucket_mib=0.2', 'trainer.strategy=ddp', *dist)
            planned = at(self.planned('--ranks', '4', *GIVEN[2:], '--no-memory', *options)['steps'], 4, 'ddp')
            result = npu_tool('bench', self.config(CONFIG), *options, 'trainer.threads=1', '--what', 'dist', '--no-machine', '--nproc', '4',
                              '--batch', '13', '--steps', '1', '--warmup', '1', '--json', cwd=self.dir)
            self.assertEqual(result[0], 0, result[2])
            row = json.loads(result[1])['rows'][0]
            if 'dist.group_size=2' not in dist:
                self.assertEqual(planned['sent_bytes'], row['sent_bytes'], dist)
                continue
            self.assertEqual(planned['between_bytes'], row['between_bytes'], dist)
            # Of two ranks, the first one sends the sum to the other one. Before that, it sends half of the gradients, which bench does not
            # count.
            content = row['sent_bytes'] - row['between_bytes']
            self.assertEqual(planned['sent_bytes'], planned['between_bytes'] + 1.5 * content, dist)

    def test_measured_steps(self):
        points = ''.join(f'{n},{link}Mbit/s,{strategy},{n / 2},{seconds},{use}\n' for n, link, strategy, seconds, use in (
            (1, 100, 'single', 0.05, 'fit'), (2, 100, 'ddp', 0.16, 'fit'), (2, 1000, 'ddp', 0.07, 'fit'), (3, 300, 'ddp', 0.16, 'check'),
            (4, 300, 'ddp', 0.21, 'check')))
        found = self.planned('--measured', self.points(points), '--ranks', '2,6', '--link', '300Mbit/s', '--no-memory')
        fit = found['fit']
        self.assertEqual([s['fitted'] for s in fit['steps']], [True, True, True, False, False])
        for s in fit['steps']: self.assertAlmostEqual(s['error'], s['predicted_s'] / s['measured_s'] - 1, places=9)
        for s in fit['steps'][:3]: self.assertLess(abs(s['error']), 0.005)  # measured: 0.001; there are as many rates as steps
        unfitted = [abs(s['error']) for s in fit['steps'][3:]]
        self.assertAlmostEqual(fit['mean_error'], sum(unfitted) / 2, places=9)
        self.assertAlmostEqual(fit['largest_error'], max(unfitted), places=9)
        self.assertEqual(at(found['steps'], 2, 'ddp')['extrapolation'], '')
        self.assertEqual(at(found['steps'], 6, 'zero1')['extrapolation'], 'more than 4 ranks, zero1')
        text = self.plan('--measured', 'points.csv')
        self.assertDone(text)
        self.assertIn('2 steps that were not fitted: mean error', text[1])

    def test_real_steps_that_were_not_fitted(self):
        result = npu_tool('plan', self.config(MEASURED), '--measured', POINTS, '--json')
        self.assertDone(result)
        fit = json.loads(result[1])['fit']
        errors = [abs(s['error']) for s in fit['steps'] if not s['fitted']]
        self.assertEqual((len(fit['steps']), len(errors)), (58, 49))
        self.assertLess(fit['mean_error'], 0.075)  # measured: 0.057
        self.assertGreaterEqual(sum(e < 0.15 for e in errors), 46)  # measured: 47
        of_groups = [abs(s['error']) for s in fit['steps'] if 'group_size' in s['step']]
        self.assertEqual(len(of_groups), 12)
        self.assertLess(sum(of_groups) / 12, 0.06)  # measured: 0.038; fitted to steps without groups
        self.assertLess(max(of_groups), 0.15)  # measured: 0.115

    def test_mistakes(self):
        for args, words in (((), 'nothing to plan'),
                            (('--ranks', '8'), 'the speed of a rank is not given'),
                            (('--ranks', '8', '--peak', '1TFLOPs'), '--link 25GB/s,5us'),
                            (('--ranks', '8', '--peak', '300TOPs', '--link', '1GB/s'), "--peak] '300TOPs'"),
                            (('--ranks', '8', '--peak', '1TFLOPs', '--link', '1GB'), "--link] '1GB'"),
                            (('--ranks', '8', '--step-time', '0s', '--link', '1GB/s'), '--step-time'),
                            (('--ranks', '0', '--peak', '1TFLOPs', '--link', '1GB/s'), '0 ranks; allowed: 1 to 65536'),
                            (('--ranks', '2', '--peak', '1TFLOPs', '--step-time', '1s'), 'excludes'),
                            (('--ranks', '2', '--peak', '1TFLOPs', '--link', '1GB/s', '--memory', 'much'), "--memory] 'much'"),
                            ((*GIVEN, 'dist.shard_by=layer'), 'dist.shard_by=layer is not modelled'),
                            ((*GIVEN, 'dist.offload=optimizer'), 'dist.offload=optimizer is not modelled'),
                            ((*GIVEN, 'dist.group_size=2', 'dist.reduction=ordered'), 'dist.reduction=ordered'),
                            ((*GIVEN, 'dist.group_size=two'), "dist.group_size: 'two'")):
            self.assertFails(self.plan(*args), USAGE, words)
        self.assertFails(npu_tool('plan'), USAGE, 'no configuration is given')
        if SIM_NPU:
            chip = ('device=sim_npu', 'sim_npu.soc=910A', '--peak', '1TFLOPs', '--link', '1Gbit/s', '--no-memory')
            self.assertFails(self.plan(*chip, '--ranks', '3', '--per-machine', '8', '--local-link', '1GB/s'), USAGE, '3 ranks, 3 on a machine: the chip connects 1, 2, 4 or 8')
            self.assertFails(self.plan(*chip, '--ranks', '2', 'dist.reduce_dtype=bf16'), USAGE, 'exchanges no bf16')
        self.assertFails(self.plan('--measured', self.points('2,1Gbit/s,ddp,1,none,fit\n')), DATA, 'points.csv')
        self.assertFails(self.plan('--measured', self.points('2,1Gbit,ddp,1,1,fit\n')), USAGE, "points.csv:2] '1Gbit'")
        self.assertNotEqual(self.plan('--measured', 'none.csv')[0], 0)


if __name__ == '__main__':
    main()
