"""Ranks on NPUs: what carries their gradients. The NPU and HCCL are stand-ins, so that the bits of all transports can be compared."""
import os
import unittest
from array import array

from programs import BIN, NPU_RANKS, ProgramTest, checksums, contents, main, npu_tool, run_dir, safetensors_of, train_app

NPU = BIN.parent / 'tests' / 'fake_torch_npu' / 'works'
PLUGIN = BIN.parent / 'tests' / 'fake_torch_npu' / 'hccl'
CONFIG = NPU_RANKS + 'trainer: {max_epochs: 1, threads: 1, gradient_clip_val: 0.5}\n'


class Hccl(ProgramTest):
    def environment(self, **more):
        # Not those of the machine that runs the test.
        own = {k: v for k, v in os.environ.items() if k not in ('ASCEND_RT_VISIBLE_DEVICES', 'NPU_TRAIN_PLUGIN_DIR')}
        return {**own, 'NPU_TRAIN_TORCH_NPU': str(NPU), **more}

    def train(self, name, *args, nproc=2, plugin=True, **env):
        if plugin: env['NPU_TRAIN_PLUGIN_DIR'] = str(PLUGIN)
        launch = ('--nproc', nproc) if nproc else ()
        return train_app(self.config(CONFIG), *launch, f'output.dir={self.dir / name}', *args, env=self.environment(**env), timeout=600)

    def bits(self, name): return {part: checksums(self.dir / name)[part] for part in ('model.safetensors', 'optimizer.safetensors')}

    def test_gradients_travel_between_devices_with_the_bits_that_they_have_over_gloo(self):
        trace = self.dir / 'trace.txt'
        hccl = self.train('hccl', 'dist.reduction=ordered', FAKE_HCCL_TRACE=str(trace))
        self.assertDone(hccl)
        self.assertIn('data parallel over HCCL, ordered sums', hccl[1] + hccl[2])
        self.assertDone(self.train('gloo', 'dist.backend=gloo'))
        self.assertEqual(self.bits('hccl'), self.bits('gloo'))
        lines = trace.read_text().split('\n')
        # 6 steps of each of two ranks, and several buckets.
        exchanges, gathers = (sum(line.startswith(name) for line in lines) for name in ('all_to_all', 'all_gather'))
        self.assertEqual(exchanges, gathers)
        self.assertEqual(exchanges % 12, 0)
        self.assertGreater(exchanges, 12)
        self.assertFalse(any(line.startswith('all_reduce') for line in lines))

    def test_sums_of_the_transport_are_the_default_between_devices_and_bits_of_order_where_they_are_needed(self):
        trace = self.dir / 'trace.txt'
        native = self.train('native', FAKE_HCCL_TRACE=str(trace))
        self.assertDone(native)
        self.assertIn('data parallel over HCCL, native sums', native[1] + native[2])
        self.assertEqual({line.split()[0] for line in trace.read_text().splitlines()}, {'all_reduce', 'distribute'})  # weights at the start
        groups = self.train('groups', 'dist.preset=communication', 'dist.group_size=2', 'dist.check_every=1', nproc=4, FAKE_NPU_DEVICES='4',
                            FAKE_HCCL_TRACE=str(trace))
        self.assertDone(groups)
        self.assertIn('2 groups of 2 ranks add inside', groups[1] + groups[2])
        self.assertIn('no times are known', groups[1] + groups[2])  # queued, and done at once
        self.assertLessEqual({'reduce', 'all_gather', 'distribute'}, {line.split()[0] for line in trace.read_text().splitlines()})
        ordered = self.train('rounds', 'dist.reduce=micro_batch', 'trainer.accumulate_grad_batches=2')
        self.assertDone(ordered)
        self.assertIn('data parallel over HCCL, ordered sums', ordered[1] + ordered[2])

    def test_shards_are_scattered_sums_which_need_no_all_to_all(self):
        """Of two ranks these sums have the bits of ordered ones."""
        for strategy in ('zero1', 'zero2', 'zero3'):
            trace, words = self.dir / f'{strategy}.txt', (f'trainer.strategy={strategy}', 'trainer.max_steps=3')
            hccl = self.train(f'{strategy}_hccl', *words, FAKE_HCCL_TRACE=str(trace), FAKE_HCCL_NO_ALL_TO_ALL='1')
            self.assertDone(hccl)
            self.assertIn('data parallel over HCCL, native sums', hccl[1] + hccl[2])
            calls = {line.split()[0] for line in trace.read_text().splitlines()}
            weights = set() if strategy == 'zero3' else {'distribute'}  # parameters in shards are sent from the host, unit by unit
            self.assertEqual(calls, {'reduce_scatter', 'all_gather'} | weights, strategy)
            self.assertDone(self.train(f'{strategy}_gloo', *words, 'dist.backend=gloo'))
            for part in ('model.safetensors', 'optimizer.safetensors'):
                self.assertEqual(contents(self.dir / f'{strategy}_hccl')[part], contents(self.dir / f'{strategy}_gloo')[part], (strategy, part))
        four = self.train('hsdp', 'trainer.strategy=zero2', 'dist.shard_size=2', 'dist.check_every=1', 'trainer.max_steps=3', nproc=4,
                          FAKE_NPU_DEVICES='4', FAKE_HCCL_NO_ALL_TO_ALL='1')
        self.assertDone(four)

    def test_statistics_of_synchronised_layers_travel_between_devices(self):
        """The second window has a batch on rank 0 alone: what travels there goes through host memory."""
        words = ('model={name: resnet18}', 'trainer.sync_batchnorm=true', 'data.train_size=24', 'data.val_size=8', 'optimizer={name: sgd, lr: 0.01}')
        trace, weights = self.dir / 'trace.txt', []
        for name, more in (('hccl', ()), ('gloo', ('dist.backend=gloo',))):
            self.assertDone(self.train(name, *words, *more, FAKE_HCCL_TRACE=str(trace)))
            weights.append(safetensors_of(run_dir(self.dir / name) / 'checkpoints' / 'last' / 'model.safetensors'))
        layers = sum(name.endswith('running_mean') for name in weights[0])
        # Both passes of each layer, on two ranks; nothing else is gathered by ddp with native sums.
        self.assertEqual(sum(line.startswith('all_gather') for line in trace.read_text().splitlines()), layers * 2 * 2)
        for name, (dtype, _, data) in weights[0].items():
            if dtype != 'F32': continue
            ours, expected = (array('f', of[name][2]) for of in weights)
            largest = max(map(abs, expected))
            self.assertLess(max(abs(a - b) for a, b in zip(ours, expected)), 1e-3 * max(largest, 1e-3), name)

    def test_a_rank_that_loses_another_one_aborts_its_communicator(self):
        trace = self.dir / 'trace.txt'
        command = (f'[ $RANK = 0 ] || export FAKE_HCCL_LAST_CALL=100; exec "{BIN}/train_app" "{self.config(CONFIG)}" output.dir={self.dir}/o '
                   'trainer.max_epochs=100 dist.timeout=60')
        result = npu_tool('launch', '--nproc', 2, '--', 'sh', '-c', command,
                          env=self.environment(NPU_TRAIN_PLUGIN_DIR=str(PLUGIN), FAKE_HCCL_TRACE=str(trace)))
        self.assertFails(result, 3, 'rank 1 of 2', 'ended with exit code 3')
        self.assertEqual(trace.read_text().splitlines()[-1], 'abort 0')

    def test_bf16_gradients_are_converted_on_the_device(self):
        words = ('dist.reduce_dtype=bf16', 'trainer.max_steps=2')
        self.assertDone(self.train('hccl', *words, FAKE_NPU_SOC='Ascend910B1'))
        self.assertDone(self.train('gloo', *words, 'dist.backend=gloo', FAKE_NPU_SOC='Ascend910B1'))
        self.assertEqual(self.bits('hccl'), self.bits('gloo'))

    def test_compressed_gradients_have_the_bits_that_they_have_over_gloo(self):
        for method, strategy in (('int8', 'ddp'), ('topk:0.1+int8', 'ddp'), ('powersgd:2', 'zero1')):
            words = (f'dist.compression={method}', f'trainer.strategy={strategy}', 'trainer.max_steps=3')
            name = f'{method[:4]}_{strategy}'
            hccl = self.train(f'{name}_hccl', *words)
            self.assertDone(hccl)
            self.assertIn('data parallel over HCCL, ordered sums', hccl[1] + hccl[2])
            self.assertDone(self.train(f'{name}_gloo', *words, 'dist.backend=gloo'))
            of_hccl, of_gloo = (checksums(self.dir / f'{name}_{transport}') for transport in ('hccl', 'gloo'))
            for part in ('model.safetensors', 'compression.rank0000.safetensors', 'compression.rank0001.safetensors'):
                self.assertEqual(of_hccl[part], of_gloo[part], (method, part))

    def test_every_collective_is_compared_before_it_runs(self):
        self.assertDone(self.train('debug', 'dist.debug=true', 'dist.reduction=ordered', 'trainer.max_steps=2'))

    def test_without_the_plugin_gradients_travel_over_gloo_with_a_warning_and_a_named_transport_is_an_error(self):
        result = self.train('auto', 'trainer.max_steps=1', plugin=False)
        self.assertDone(result)
        self.assertIn('gradients travel over Gloo, by copies in host memory; rank 0: the library of HCCL is not found', result[2])
        self.assertIn('-DNPU_TRAIN_TORCH_NPU_DIR', result[2])
        self.assertIn('data parallel over Gloo, ordered sums', result[1] + result[2])
        self.assertFails(self.train('named', 'dist.backend=hccl', plugin=False), 4, '[dist.backend]', 'the library of HCCL is not found')
        self.assertFails(self.train('broken', 'dist.backend=hccl', FAKE_HCCL_BROKEN='1'), 9, 'HCCL function error')

    def test_all_ranks_use_the_same_transport(self):
        command = f'[ $RANK = 0 ] || unset NPU_TRAIN_PLUGIN_DIR; exec "{BIN}/train_app" "{self.config(CONFIG)}" output.dir={self.dir}/o trainer.max_steps=1'
        result = npu_tool('launch', '--nproc', 2, '--', 'sh', '-c', command, env=self.environment(NPU_TRAIN_PLUGIN_DIR=str(PLUGIN)))
        self.assertDone(result)
        self.assertIn('gradients travel over Gloo, by copies in host memory; rank 1: the library of HCCL', result[2])

    def test_ranks_that_share_a_device_and_other_kinds_of_devices_have_no_transport_of_their_own(self):
        shared = self.train('shared', 'trainer.max_steps=1', FAKE_NPU_DEVICES='1')
        self.assertDone(shared)
        self.assertIn('2 ranks share 1 devices of the kind npu, and HCCL needs a device for each', shared[2])
        self.assertFails(self.train('nccl', 'dist.backend=nccl'), 4, 'nccl does not connect devices of the kind npu')
        self.assertFails(self.train('cpu', 'dist.backend=nccl', 'device=cpu'), 2, 'nccl does not connect host memory', 'auto, gloo')

    def test_a_run_starts_a_process_for_each_visible_device(self):
        every = self.train('every', 'trainer.max_steps=1', nproc=0, ASCEND_RT_VISIBLE_DEVICES='0,1')
        self.assertDone(every)
        self.assertIn('trainer.devices=auto: starts 2 processes, one for each device; trainer.devices=1 uses one', every[2])
        self.assertIn('2 ranks, started by npu_train', every[1] + every[2])
        for words in (('trainer.devices=1',), ('device=npu:1',), ('--fast-dev-run',), ('device=cpu',)):
            with self.subTest(words):
                one = self.train('one' + words[0][-1], 'trainer.max_steps=1', *words, nproc=0, ASCEND_RT_VISIBLE_DEVICES='0,1')
                self.assertDone(one)
                self.assertNotIn('processes', one[1] + one[2])


if __name__ == '__main__':
    main()
