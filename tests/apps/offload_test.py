"""dist.offload=optimizer on the simulated NPU, against runs whose optimizer is on the device: equal bits, less memory of the device."""
import json

from programs import FULL, REPEATABLE, ProgramTest, contents, main, needs_sim_npu, npu_tool, run_dir, train_app

PARTS = ['model.safetensors', 'optimizer.safetensors', 'ema.safetensors']
OFFLOAD = 'dist.offload=optimizer'

# 9 steps of 2 micro-batches of 8 samples, of which the last one in an epoch has 8 and 3: with two ranks, one rank has a short micro-batch.
TINY = REPEATABLE + '''
device: sim_npu
model: {name: vit_tiny_cifar10, depth: 2, dim: 32, heads: 2, patch_size: 8, dropout: 0.1, fused_kernels: false}
data: {name: generated, train_size: 75, val_size: 20, batch_size: 8, num_workers: 0}
lr_scheduler: {name: cosine, interval: step, T_max: 40}
grad_scaler: {init_scale: 16777216, growth_interval: 3}
average: {enabled: true, decay: 0.9}
trainer: {max_steps: 9, threads: 1}
checkpoint: {every_n_train_steps: 3}
dist: {bucket_mib: 0.02, reduce: micro_batch}
'''


@needs_sim_npu
class Offload(ProgramTest):
    def train(self, name, *args, nproc=1, window=2):
        """Contents of the last checkpoint and the validations, of `nproc` ranks with a window of 2 micro-batches together."""
        out = self.dir / name
        micro_batches = f'trainer.accumulate_grad_batches={window // nproc}'
        many = ['--nproc', nproc] if nproc > 1 else []
        result = train_app(self.config(TINY), *many, f'output.dir={out}', micro_batches, *args, timeout=600)
        self.assertDone(result)
        log = json.loads((run_dir(out) / 'history.json').read_text())
        return contents(out), [e['val'] for e in log['epochs']], sum(e['skipped'] for e in log['epochs']), result[1] + result[2]

    def assertEqualRuns(self, a, b, name):
        for part in PARTS: self.assertEqual(a[0][part], b[0][part], f'{name}: {part}')
        self.assertEqual(a[1], b[1], f'{name}: validations')
        self.assertEqual(a[2], b[2], f'{name}: skipped steps')

    def test_every_strategy_has_the_bits_of_the_optimizer_on_the_device(self):
        whole = self.train('device')
        offloaded = self.train('single', OFFLOAD)
        self.assertIn('the optimizer computes on the host', offloaded[3])
        self.assertEqualRuns(whole, offloaded, 'single')
        for strategy in ('ddp', 'zero1', 'zero2', 'zero3') if FULL else ('ddp', 'zero3'):  # other cases cover the other strategies
            self.assertEqualRuns(whole, self.train(strategy, OFFLOAD, f'trainer.strategy={strategy}', nproc=2), strategy)

    def test_low_precisions_with_skipped_steps_also_interrupted(self):
        """Runs are interrupted inside epochs and go on with other numbers of ranks, with the optimizer on the host and at last on the
        device."""
        circles = {'16-mixed': ('zero3', [(1, 'auto', OFFLOAD, 3), (2, 'zero3', OFFLOAD, 5), (2, 'zero1', OFFLOAD, 7), (1, 'auto', 'dist.offload=none', 9)]),
                   '16-true': ('zero2', [(2, 'zero2', OFFLOAD, 4), (1, 'auto', OFFLOAD, 9)])}
        for precision, (strategy, circle) in circles.items():
            one = f'precision={precision}'
            whole = self.train(f'{precision}_device', one)
            self.assertGreater(whole[2], 1)
            self.assertEqualRuns(whole, self.train(f'{precision}_ranks', one, OFFLOAD, f'trainer.strategy={strategy}', nproc=2), strategy)
            for nproc, now, offload, steps in circle:
                args = [one, offload, f'trainer.strategy={now}', f'trainer.max_steps={steps}', '--resume', 'auto']
                end = self.train(f'{precision}_circle', *args, nproc=nproc)
            for part in PARTS: self.assertEqual(whole[0][part], end[0][part], f'{precision}: {part}')

    def test_an_overflow_that_only_the_flag_of_the_device_shows_skips_the_step(self):
        chip = ['sim_npu.soc=910A', 'precision=16-mixed', 'trainer.max_steps=6']
        whole = self.train('device', *chip)
        self.assertGreater(whole[2], 1)
        self.assertEqualRuns(whole, self.train('single', *chip, OFFLOAD), 'single')

    def test_clipping_and_norms_of_layers_are_those_of_the_host(self):
        """A chip without fp64 adds rounded squares; with the optimizer on the host the bits are those of a CPU, whose sums are exact."""
        args = ['optimizer.name=lamb', 'trainer.gradient_clip_val=0.5', 'trainer.max_steps=6']
        cpu = self.train('cpu', *args, 'device=cpu', OFFLOAD)
        self.assertIn('changes nothing, because the device is a CPU', cpu[3])
        self.assertEqualRuns(cpu, self.train('single', *args, OFFLOAD), 'single')
        self.assertEqualRuns(cpu, self.train('zero2', *args, OFFLOAD, 'trainer.strategy=zero2', nproc=2), 'zero2')

    def test_groups_of_shards_compression_and_graphs(self):
        cases = {'compression': (['trainer.strategy=zero1', 'dist.compression=int8', 'dist.reduce=window', 'precision=16-mixed'], {'nproc': 2}),
                 'graphs': (['trainer.cuda_graphs=true', 'rng=native', 'model.dropout=0', 'trainer.max_steps=12'], {'window': 1})}
        for name, (args, ranks) in cases.items():
            whole = self.train(f'{name}_device', *args, **ranks)
            offloaded = self.train(name, *args, OFFLOAD, **ranks)
            self.assertEqualRuns(whole, offloaded, name)
            self.assertEqual('of a window are captured' in offloaded[3], name == 'graphs')
        groups = self.train('groups', OFFLOAD, 'trainer.strategy=zero3', 'dist.shard_size=2', 'trainer.max_steps=4', nproc=4, window=4)
        self.assertEqualRuns(self.train('groups_device', 'trainer.max_steps=4', window=4), groups, 'groups of shards')

    def test_the_device_has_neither_the_optimizer_s_state_nor_averages(self):
        """Predicted, and measured by the device's allocator; in one process, and for one of two ranks."""
        config = self.config(TINY)
        state, averages = 'optimizer state', 'averages'

        def memory(*args): return json.loads(self.assertDone(npu_tool('memory', config, '--json', *args)))
        for ranks in ([], ['--nproc', '2', '--strategy', 'zero1']):
            on_device, on_host = (memory('--quick', *ranks, offload)['components'] for offload in ('dist.offload=none', OFFLOAD))
            self.assertGreater(on_device[state], 0)
            self.assertGreater(on_device[averages], 0)
            self.assertEqual((on_host[state], on_host[averages]), (0, 0))
            self.assertEqual((on_host['parameters'], on_host['master weights']), (on_device['parameters'], 0))
        one = memory('--quick')['components']
        (before,), (after,) = memory('--check', '2'), memory('--check', '2', OFFLOAD)
        for row in (before, after): self.assertLess(abs(row['error']), 0.02)
        self.assertAlmostEqual(before['measured'] - after['measured'], one[state] + one[averages], delta=0.02 * one[state])

    def test_the_default_strategy_counts_what_the_device_has(self):
        """425,098 parameters take 1.6 MiB, and their gradients as much. Only with state and averages is this more than half of the device's
        memory."""
        small = ['model.dim=128', 'sim_npu.hbm=14MiB', 'trainer.max_steps=2', 'model.dropout=0']
        self.assertIn('(zero1)', self.train('device', *small, nproc=2)[3])
        said = self.train('host', *small, OFFLOAD, nproc=2)[3]
        self.assertIn('2 ranks, started by npu_train: data parallel over Gloo', said)
        self.assertNotIn('zero', said)

    def test_what_is_refused(self):
        plan = npu_tool('plan', self.config(TINY), '--ranks', '2', '--link', '1GB/s', '--peak', '1TFLOPs', '--no-memory', OFFLOAD)
        self.assertFails(plan, 2, 'dist.offload=optimizer is not modelled; allowed: none')
        result = train_app(self.config(TINY), f'output.dir={self.dir}/none', 'dist.offload=parameters')
        self.assertFails(result, 2, "dist.offload", "'parameters'", 'optimizer')
        self.assertFalse((self.dir / 'none').exists())


if __name__ == '__main__':
    main()
