"""Processes with device=sim_npu: the simulated device that a run uses, memory that runs out, and operators that the chip does not have."""
import json
import os

from programs import BIN, FULL, ProgramTest, checksums, main, npu_tool, run, run_dir, train_app

DEVICE, MEMORY = 4, 8
# Memory into which the parameters and a batch of 8 fit easily, but a batch of 160 does not.
TIGHT = ['device=sim_npu', 'sim_npu.hbm=2MiB', 'trainer.max_steps=1', 'data.val_batch_size=8']


class SimNpu(ProgramTest):
    def train(self, out, *args, precision='16-mixed'):
        return train_app(self.config(precision=precision), f'output.dir={self.dir}/{out}', *args)

    def written(self, out): return {p.name.split('.tfevents')[0] for p in run_dir(self.dir / out).iterdir()}

    def test_a_program_found_through_the_search_path_finds_the_simulator(self):
        run_there = {'cwd': self.dir, 'env': {**os.environ, 'PATH': f'{BIN.resolve()}:{os.environ["PATH"]}'}}
        self.assertDone(run('sh', '-c', f'exec train_app {self.config()} device=sim_npu --fast-dev-run', **run_there))

    def test_out_of_memory_does_not_warn_of_the_precisions_that_it_tries(self):
        result = self.train('out', *TIGHT, 'data.batch_size=160', 'grad_scaler={}', precision='32-true')
        self.assertFails(result, MEMORY, 'NPU out of memory', 'changes that would fit')
        self.assertNotIn('warning:', result[2])

    def test_the_second_of_two_devices_trains_as_the_first(self):
        two = ('sim_npu.devices=2', 'trainer.max_steps=2')
        for index in (0, 1):
            self.assertDone(self.train(f'd{index}', f'device=sim_npu:{index}', *two))
            manifest = json.loads((run_dir(self.dir / f'd{index}') / 'checkpoints' / 'last' / 'manifest.json').read_text())
            self.assertEqual((manifest['device'], manifest['global_step']), (f'sim_npu:{index}', 2))
        first, second = checksums(self.dir / 'd0'), checksums(self.dir / 'd1')
        for part in ('model', 'optimizer', 'ema'): self.assertEqual(first[f'{part}.safetensors'], second[f'{part}.safetensors'], part)
        self.assertFails(self.train('d2', 'device=sim_npu:2', *two), DEVICE, 'sim_npu:2', 'has 2')
        self.assertFalse((self.dir / 'd2').exists())

    def test_out_of_memory_says_what_to_do_and_that_helps(self):
        result = self.train('out', *TIGHT, 'data.batch_size=160')
        fits = 'trainer.on_oom=retry data.batch_size=32 trainer.accumulate_grad_batches=5'
        self.assertFails(result, MEMORY, 'NPU out of memory', '2097152 bytes', 'fragmentation', f'would fit is {fits}')
        self.assertEqual(self.written('out'), {'config.yaml', 'environment.json', 'train.log', 'metrics.csv', 'events.out'})
        self.assertDone(self.train('advised', *TIGHT, *fits.split()))
        # The files of the failed run do not prevent another run.
        self.assertDone(self.train('out', *TIGHT, 'data.batch_size=8', '--resume', 'auto'))
        self.assertTrue((next((self.dir / 'out').glob('*/version_1')) / 'checkpoints' / 'last' / 'manifest.json').exists())

    def test_memory_is_that_of_the_device_of_the_run(self):
        self.assertFails(self.train('out', *TIGHT, 'sim_npu.devices=2', 'device=sim_npu:1', 'data.batch_size=160'), MEMORY, 'NPU 1 has')

    def test_a_model_that_does_not_fit_leaves_no_folder(self):
        self.assertFails(self.train('out', 'device=sim_npu', 'sim_npu.hbm=64KiB'), MEMORY, 'NPU out of memory', '65536 bytes')
        self.assertFalse((self.dir / 'out').exists())

    def test_operators_that_all_have_kernels_are_not_refused(self):
        strict = ('device=sim_npu', 'sim_npu.unsupported_ops=error', 'trainer.max_steps=1', 'trainer.limit_val_batches=1')
        self.assertDone(self.train('vit', *strict))
        resnet = ('model={name: resnet18, stem: small}', 'data.batch_size=2', 'grad_scaler={}')
        self.assertDone(self.train('resnet', *strict, *resnet, precision='32-true'))

    def test_ignored_operators_are_not_mentioned(self):
        run = ('device=sim_npu', 'sim_npu.unsupported_ops=ignore', 'trainer.max_steps=1', 'grad_scaler={}')
        result = self.train('out', *run, precision='bf16-mixed')
        self.assertDone(result)
        self.assertNotIn('warning', result[2])

    def test_a_resnet_s_dump_agrees_with_the_cpu_s_which_fuses_its_norms(self):
        net = ('model={name: resnet18}', 'data.image_size=64', 'data.batch_size=4', 'grad_scaler={}', 'trainer.max_steps=1', 'checkpoint.enabled=false')
        for device in ('cpu', 'sim_npu'):
            self.assertDone(self.train(device, f'device={device}', f'dump.dir={self.dir}/dump_{device}', *net, precision='32-true'))
        for a, b in (('sim_npu', 'cpu'), ('cpu', 'sim_npu')):
            result = npu_tool('compare', self.dir / f'dump_{a}', self.dir / f'dump_{b}')
            self.assertEqual(result[0], 0, result[1])
            self.assertIn('fused_kernels: ', result[1])

    def test_a_part_of_what_agrees_raises_no_alarm(self):
        """One side fuses its norms, and a part may leave out the layer that proves where their outputs belong."""
        def dump(name, *words, net='resnet18'):
            folders = [self.dir / f'{name}_{device}' for device in ('sim_npu', 'cpu')]
            for device, folder in zip(('sim_npu', 'cpu'), folders):
                self.assertDone(self.train('out', f'device={device}', f'dump.dir={folder}', f'model={{name: {net}}}', 'data.image_size=64', 'data.batch_size=8',
                                           'grad_scaler={}', 'trainer.max_steps=1', 'trainer.limit_val_batches=0', 'checkpoint.enabled=false', *words,
                                           precision='32-true'))
            return folders

        def compare(folders, *words):
            code, out, error = npu_tool('compare', *folders, *words)
            self.assertEqual(code, 0, f'{words}: {out}{error}')
            return out + error
        seeds = range(8 if FULL else 2)
        if FULL:
            deep = dump('deep', 'dump.task=statistics', net='resnet50')
            compare(deep)
            for seed in seeds: compare(deep, '--sample', '0.1', '--seed', seed)
        for task in ('statistics', 'tensor') if FULL else ('tensor',):
            whole = dump(task, f'dump.task={task}')
            compare(whole)
            for seed in seeds: compare(whole, '--sample', '0.1', '--seed', seed)
            compare(whole, '--layers', 'layer4*')
            said = compare(whole, '--layers', 'layer4.1.bn2')
            self.assertIn('warning', said)
            self.assertIn('not proven in this part: layer4.1.bn2', said)
        compare(dump('list', 'dump.list=[layer4*]'))
        compare(dump('backward', 'dump.list=[layer4*]', 'dump.data_mode=[backward]'))
        compare(dump('scope', 'dump.scope=[layer2.0.conv1, layer3.1.bn2]'))

    def test_usage(self):
        self.assertFails(self.train('out', 'device=sim_npu', 'sim_npu.unsupported_ops=refuse'), 2, "'refuse'", 'error', 'ignore')
        self.assertFails(self.train('out', 'device=sim_npu', 'sim_npu.hbm=plenty'), 2, "'plenty'", '32GiB')
        self.assertFails(self.train('out', 'device=sim_npu', 'sim_npu={soc: 910A, overflow_mode: inf_nan}'), 2, '910A', 'saturation')
        old = ('device=sim_npu', 'sim_npu.soc=910A', 'grad_scaler={}')
        self.assertFails(self.train('out', *old, precision='bf16-mixed'), 2, 'no bf16', '16-mixed')
        self.assertFalse((self.dir / 'out').exists())


if __name__ == '__main__': main()
