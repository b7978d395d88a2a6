"""Ranks with device=npu: the ProcessGroupHCCL of the wheel of torch_npu, on the HCCL of a CANN of the host."""
import csv
import hashlib
import unittest

from programs import BIN, NPU_RANKS, ProgramTest, contents, in_full, main, npu_tool, run_dir, train_app
from torch_npu_wheel import needs_cann, of_user

CONFIG = NPU_RANKS + 'trainer: {max_steps: 3, threads: 1, log_every_n_steps: 1}\n'
STRATEGIES = ('ddp', 'zero1', 'zero2', 'zero3')
OVERFLOWS = ('precision=16-mixed', 'grad_scaler.init_scale=262144', 'trainer.max_steps=6')


@needs_cann
class NpuRanks(ProgramTest):
    def train(self, name, *words, nproc=None, **env):
        launch = ('--nproc', nproc) if nproc else ('trainer.devices=1',)
        return train_app(self.config(CONFIG), *launch, f'output.dir={self.dir / name}', *words, env=of_user(SIM_CANN_DEVICES='4', **env))

    def rows(self, name):
        """(step, phase, scale, skipped steps, loss) of a run, as its file has them."""
        with open(run_dir(self.dir / name) / 'metrics.csv') as file:
            return [tuple(row[key] for key in ('step', 'phase', 'loss_scale', 'skipped', 'loss')) for row in csv.DictReader(file) if row['loss']]

    def check_bits(self, ranks, strategy, *words):
        """`ranks` processes give the losses, in every digit, and the weights of one process with as many accumulated micro-batches."""
        one, many = f'one_{ranks}', f'{strategy}_{ranks}'
        if not (self.dir / one).exists(): self.assertDone(self.train(one, *words, f'trainer.accumulate_grad_batches={ranks}'))
        result = self.train(many, *words, f'trainer.strategy={strategy}', nproc=ranks)
        self.assertDone(result)
        self.assertIn('data parallel over HCCL, native sums', result[1] + result[2])
        self.assertEqual(self.rows(one), self.rows(many))
        self.assertGreater(len(set(self.rows(one))), 3)
        if strategy != 'zero3':  # whose weights are in a file of each rank
            weights = [contents(self.dir / name)['model.safetensors'] for name in (one, many)]
            self.assertEqual(*(hashlib.sha256(repr(of).encode()).hexdigest() for of in weights))
        return self.rows(many)

    def test_two_ranks_have_the_bits_of_one(self):
        for strategy in ('ddp', 'zero3'):
            with self.subTest(strategy): self.check_bits(2, strategy)

    def test_ranks_skip_the_same_steps(self):
        rows = self.check_bits(2, 'zero2', *OVERFLOWS)
        skips = [int(row[3]) for row in rows if row[1] == 'train']
        self.assertTrue(0 < sum(skips) < len(skips), rows)

    @in_full
    def test_every_strategy_of_two_and_of_four_ranks(self):
        for ranks in (2, 4):
            for strategy in STRATEGIES:
                with self.subTest(strategy, ranks=ranks): self.check_bits(ranks, strategy)

    @in_full
    def test_every_strategy_with_overflows(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy): self.check_bits(2, strategy, *OVERFLOWS)

    @in_full
    def test_norms_of_shards_are_those_of_one_process_but_for_rounding(self):
        self.assertDone(self.train('one', 'trainer.accumulate_grad_batches=2', 'trainer.gradient_clip_val=0.5'))
        for strategy in STRATEGIES:
            self.assertDone(self.train(strategy, f'trainer.strategy={strategy}', 'trainer.gradient_clip_val=0.5', nproc=2))
            for a, b in zip(self.rows('one'), self.rows(strategy), strict=True):
                self.assertEqual(a[:4], b[:4])
                self.assertAlmostEqual(float(a[4]), float(b[4]), delta=1e-5)

    @in_full
    def test_no_access_of_ranks_races(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                result = self.train(strategy, f'trainer.strategy={strategy}', nproc=2, SIM_CANN_CHECK='races', TASK_QUEUE_ENABLE='0')
                self.assertDone(result)
                self.assertNotIn('sim_cann: race', result[1] + result[2])

    def fault(self, how):
        """Of a run in which rank 1 does not finish a collective on the device."""
        command = (f'[ $RANK = 0 ] || export SIM_CANN_FAULT=HcclAllReduce:9:{how}; '
                   f'exec "{BIN}/train_app" "{self.config(CONFIG)}" output.dir={self.dir}/o dist.timeout=4')
        return npu_tool('launch', '--nproc', 2, '--', 'sh', '-c', command, env=of_user())

    def test_a_rank_that_ends_in_a_collective(self):
        """The launcher reports the rank that it finds first: the one that ended, or the one that lost it."""
        code, out, err = self.fault('exit')
        self.assertIn(code, (3, 4, 9), out + err)
        self.assertRegex(err, 'rank 1 of 2 .*ended with exit code 3|rank 1 has ended|rank 0 of 2 .*lost contact')

    @in_full  # the launcher waits before it kills the rank that hangs
    def test_a_collective_that_hangs_ends_with_the_timeout(self):
        self.assertFails(self.fault('hang'), 4, 'HcclAllReduce: rank 0 waited 4 s for rank 1', 'ACL stream synchronize failed')


if __name__ == '__main__':
    main()
