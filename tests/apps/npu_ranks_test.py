"""Ranks with device=npu: the ProcessGroupHCCL of the wheel of torch_npu, on the HCCL of a CANN of the host."""
import collections
import csv
import hashlib
from array import array

from programs import BIN, NPU_RANKS, ProgramTest, checksums, contents, in_full, main, npu_tool, run_dir, safetensors_of, train_app
from torch_npu_wheel import needs_cann, of_user

CONFIG = NPU_RANKS + 'trainer: {max_steps: 3, threads: 1, log_every_n_steps: 1}\n'
STRATEGIES = ('ddp', 'zero1', 'zero2', 'zero3')
OVERFLOWS = ('precision=16-mixed', 'grad_scaler.init_scale=262144', 'trainer.max_steps=6')


@needs_cann
class NpuRanks(ProgramTest):
    def train(self, name, *words, nproc=None, **env):
        launch = ('--nproc', nproc) if nproc else ('trainer.devices=1',)
        return train_app(self.config(CONFIG), *launch, f'output.dir={self.dir / name}', *words, env=of_user(SIM_CANN_DEVICES='4', **env))

    def over(self, transport, name, *words, **env):
        """Runs two ranks whose gradients travel over HCCL or Gloo. Returns how often each function of HCCL was called."""
        if transport == 'gloo': return self.assertDone(self.train(f'{name}_gloo', 'dist.backend=gloo', *words, nproc=2, **env))
        counts = self.dir / f'{name}_calls'
        result = self.train(f'{name}_hccl', *words, nproc=2, SIM_CANN_CALLS=str(counts), **env)
        self.assertDone(result)
        self.assertIn('data parallel over HCCL, ', result[1] + result[2])
        out = collections.Counter()
        for line in counts.read_text().splitlines():
            function, count = line.split()
            if function.startswith('Hccl'): out[function] += int(count)
        return out

    def same_bits(self, name, *parts):
        for part in parts: self.assertEqual(*(contents(self.dir / f'{name}_{transport}')[part] for transport in ('hccl', 'gloo')), (name, part))

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
        if strategy != 'zero3':  # zero3 saves its weights in a file per rank
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

    def test_shards_are_scattered_sums_which_need_no_all_to_all(self):
        calls = self.over('hccl', 'zero2', 'trainer.strategy=zero2')
        self.assertEqual(set(calls), {'HcclReduceScatter', 'HcclAllGather', 'HcclBroadcast'})

    @in_full
    def test_shards_have_the_bits_that_they_have_over_gloo(self):
        """With two ranks, native sums have the bits of ordered sums. Parameters in shards are sent from the host, unit by unit."""
        for strategy in ('zero1', 'zero2', 'zero3'):
            for transport in ('gloo', 'hccl'): calls = self.over(transport, strategy, f'trainer.strategy={strategy}')
            self.assertEqual(set(calls), {'HcclReduceScatter', 'HcclAllGather'} | ({'HcclBroadcast'} if strategy != 'zero3' else set()))
            self.same_bits(strategy, 'model.safetensors', 'optimizer.safetensors')
        self.assertDone(self.train('hsdp', 'trainer.strategy=zero2', 'dist.shard_size=2', 'dist.check_every=1', nproc=4))

    @in_full
    def test_ordered_sums_have_the_bits_that_they_have_over_gloo(self):
        words = ('dist.reduction=ordered', 'trainer.gradient_clip_val=0.5')
        for transport in ('gloo', 'hccl'): calls = self.over(transport, 'ordered', *words)
        self.same_bits('ordered', 'model.safetensors', 'optimizer.safetensors')
        # There are several buckets in each of 3 steps, on two ranks.
        exchanges = calls['HcclAlltoAll'] + calls['HcclAlltoAllV']
        self.assertEqual((exchanges, exchanges % 6, calls['HcclAllReduce']), (calls['HcclAllGather'], 0, 0), calls)
        self.assertGreater(exchanges, 6)

    @in_full
    def test_sums_of_the_transport_are_the_default_and_ordered_ones_are_where_their_bits_are_needed(self):
        self.assertEqual(set(self.over('hccl', 'native')), {'HcclAllReduce', 'HcclBroadcast'})  # the broadcast sends the initial weights
        groups = self.train('groups', 'dist.preset=communication', 'dist.group_size=2', 'dist.check_every=1', nproc=4, SIM_CANN_CALLS=str(self.dir / 'calls'))
        self.assertDone(groups)
        self.assertIn('2 groups of 2 ranks add inside', groups[1] + groups[2])
        self.assertLessEqual({'HcclReduce', 'HcclAllGather', 'HcclBroadcast'}, {line.split()[0] for line in (self.dir / 'calls').read_text().splitlines()})
        rounds = self.train('rounds', 'dist.reduce=micro_batch', 'trainer.accumulate_grad_batches=2', nproc=2)
        self.assertDone(rounds)
        self.assertIn('data parallel over HCCL, ordered sums', rounds[1] + rounds[2])

    @in_full
    def test_statistics_of_synchronised_layers_travel_between_devices(self):
        """The second window has a batch on rank 0 alone, so there the statistics go through host memory."""
        words = ('model={name: resnet18}', 'trainer.sync_batchnorm=true', 'data.train_size=24', 'data.val_size=8', 'optimizer={name: sgd, lr: 0.01}',
                 'trainer.max_steps=-1', 'trainer.max_epochs=1')
        for transport in ('gloo', 'hccl'): calls = self.over(transport, 'layers', *words)
        weights = [safetensors_of(run_dir(self.dir / f'layers_{transport}') / 'checkpoints/last/model.safetensors') for transport in ('hccl', 'gloo')]
        layers = sum(name.endswith('running_mean') for name in weights[0])
        self.assertEqual(calls['HcclAllGather'], layers * 2 * 2, calls)  # both passes of each layer, on two ranks
        for name, (dtype, _, data) in weights[0].items():
            if dtype != 'F32': continue
            ours, expected = (array('f', of[name][2]) for of in weights)
            largest = max(map(abs, expected))
            self.assertLess(max(abs(a - b) for a, b in zip(ours, expected)), 1e-3 * max(largest, 1e-3), name)

    @in_full
    def test_gradients_in_bf16_and_compressed_ones_have_the_bits_that_they_have_over_gloo(self):
        for transport in ('hccl', 'gloo'): self.over(transport, 'bf16', 'dist.reduce_dtype=bf16')
        self.same_bits('bf16', 'model.safetensors', 'optimizer.safetensors')
        for method, strategy in (('int8', 'ddp'), ('topk:0.1+int8', 'ddp'), ('powersgd:2', 'zero1')):
            name = f'{method[:4]}_{strategy}'
            for transport in ('hccl', 'gloo'): self.over(transport, name, f'dist.compression={method}', f'trainer.strategy={strategy}')
            of_hccl, of_gloo = (checksums(self.dir / f'{name}_{transport}') for transport in ('hccl', 'gloo'))
            for part in ('model.safetensors', 'compression.rank0000.safetensors', 'compression.rank0001.safetensors'):
                self.assertEqual(of_hccl[part], of_gloo[part], (method, part))

    @in_full
    def test_every_collective_is_compared_before_it_runs(self):
        self.assertGreater(len(self.over('hccl', 'debug', 'dist.debug=true', 'dist.reduction=ordered', 'trainer.max_steps=2')), 1)

    def test_as_many_ranks_as_a_server_of_the_chip_has_not(self):
        self.assertFails(self.train('three', nproc=3, SIM_CANN_SOC='910A'), 2, 'npu:0 trains with 1, 2, 4 or 8 processes on one machine; 3 were started')

    @in_full
    def test_all_ranks_use_the_same_transport(self):
        command = (f'[ $RANK = 0 ] || export SIM_CANN_DEVICES=1; exec "{BIN}/train_app" "{self.config(CONFIG)}" output.dir={self.dir}/o '
                   'trainer.max_steps=1')
        result = npu_tool('launch', '--nproc', 2, '--', 'sh', '-c', command, env=of_user())
        self.assertDone(result)
        self.assertIn('gradients travel over Gloo, by copies in host memory; rank 1: 2 ranks share 1 devices', result[2])

    @in_full
    def test_ranks_that_share_a_device_and_other_kinds_of_devices_have_no_transport_of_their_own(self):
        words = ('--nproc', 2, f'output.dir={self.dir}/o', 'trainer.max_steps=1')
        shared = train_app(self.config(CONFIG), *words, env=of_user(SIM_CANN_DEVICES='1'))
        self.assertDone(shared)
        self.assertIn('2 ranks share 1 devices of the kind npu, and HCCL needs a device for each', shared[2])
        self.assertFails(self.train('nccl', 'dist.backend=nccl', nproc=2), 4, 'nccl does not connect devices of the kind npu')
        self.assertFails(self.train('cpu', 'dist.backend=nccl', 'device=cpu', nproc=2), 2, 'nccl does not connect host memory', 'auto, gloo')

    @in_full
    def test_a_run_starts_a_process_for_each_visible_device(self):
        def train(*words): return train_app(self.config(CONFIG), f'output.dir={self.dir}/o', 'trainer.max_steps=1', *words, env=of_user(ASCEND_RT_VISIBLE_DEVICES='0,1'))
        every = train()
        self.assertDone(every)
        self.assertIn('trainer.devices=auto: starts 2 processes, one for each device; trainer.devices=1 uses one', every[2])
        self.assertIn('2 ranks, started by npu_train', every[1] + every[2])
        for words in (('trainer.devices=1',), ('device=npu:1',), ('--fast-dev-run',), ('device=cpu',)):
            with self.subTest(words):
                one = train(*words)
                self.assertDone(one)
                self.assertNotIn('processes', one[1] + one[2])

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
        """The result of a run in which rank 1 does not finish a collective on the device."""
        command = (f'[ $RANK = 0 ] || export SIM_CANN_FAULT=HcclAllReduce:9:{how}; '
                   f'exec "{BIN}/train_app" "{self.config(CONFIG)}" output.dir={self.dir}/o dist.timeout=4')
        return npu_tool('launch', '--nproc', 2, '--', 'sh', '-c', command, env=of_user())

    def test_a_rank_that_ends_in_a_collective(self):
        """The launcher reports the rank that it finds first: the one that ended, or the one that lost it."""
        code, out, err = self.fault('exit')
        self.assertIn(code, (3, 4, 9), out + err)
        self.assertRegex(err, 'rank 1 of 2 .*ended with exit code 3|rank 1 has ended|rank 0 of 2 .*lost contact')

    @in_full  # slow: the launcher waits before it kills the rank that hangs
    def test_a_collective_that_hangs_ends_with_the_timeout(self):
        self.assertFails(self.fault('hang'), 4, 'HcclAllReduce: rank 0 waited 4 s for rank 1', 'ACL stream synchronize failed')


if __name__ == '__main__':
    main()
