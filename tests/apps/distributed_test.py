"""Training over several processes, against one process that accumulates the micro-batches of all of them: equal bits."""
import json
import os
import pathlib
import random
import signal
import subprocess

from images import png_of
from programs import BIN, FULL, REPEATABLE, ProgramTest, checkpoints, contents, in_full, main, needs_sim_npu, npu_tool, pairs_of, run, run_dir, train_app

PARTS = ['model.safetensors', 'optimizer.safetensors', 'ema.safetensors']
STRATEGIES = 'zero1', 'zero2', 'zero3'

# An epoch has 20 global micro-batches of 8 samples, and the last has 3. No number of ranks divides them, and the last window is never full.
TINY = REPEATABLE + '''
device: cpu
model: {name: vit_tiny_cifar10, depth: 2, dim: 32, heads: 2, patch_size: 8, dropout: 0.1}
data: {name: generated, train_size: 155, val_size: 50, batch_size: 8, num_workers: 0}
lr_scheduler: {name: cosine, interval: step, T_max: 40}
average: {enabled: true, decay: 0.9}
trainer: {max_epochs: 2, threads: 1, gradient_clip_val: 0.5}
checkpoint: {every_n_epochs: 1}
'''


def ranks(count, config, *args):
    """Runs train_app as `count` ranks: (exit code, stdout, stderr) of the launcher."""
    return train_app(config, '--nproc', count, *args, timeout=600)


def children(parent):
    """The processes that `parent` started, including those that have ended but were not waited for."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try: fields = path.read_text().rpartition(')')[2].split()
        except OSError: continue
        if int(fields[1]) == parent: found.append(int(path.parent.name))
    return found


def environment(pid):
    try: entries = pathlib.Path(f'/proc/{pid}/environ').read_bytes().split(b'\0')
    except OSError: return {}
    return dict(e.decode(errors='replace').split('=', 1) for e in entries if b'=' in e)


class Distributed(ProgramTest):
    references = {}  # results of one process, by number of micro-batches and options, because many cases compare with the same one

    program = BIN / 'train_app'  # the program that end_of() runs

    def end_of(self, name, config, *args, nproc=1):
        out = self.dir / name
        self.assertDone(run(self.program, config, *(['--nproc', nproc] if nproc > 1 else []), f'output.dir={out}', *args, timeout=600))
        return contents(out), json.loads((run_dir(out) / 'history.json').read_text())

    def one_process(self, config, micro_batches, *args):
        """The end of a run in one process. Options that divide the work among ranks do not change it, so they are left out."""
        options = tuple(a for a in args if not a.startswith(('trainer.strategy=', 'dist.')))
        key = (micro_batches, options)
        if key not in self.references:
            self.references[key] = self.end_of(f'one{len(self.references)}', config, f'trainer.accumulate_grad_batches={micro_batches}', *options)
        return self.references[key]

    def assertEqualBits(self, count, *args, per_rank=1, reduce='window', parts=PARTS):
        """Compares one process that accumulates count x per_rank micro-batches with `count` ranks that accumulate per_rank each."""
        config = self.config(TINY)
        one, one_log = self.one_process(config, count * per_rank, *args)
        many, many_log = self.end_of(f'many{len(list(self.dir.iterdir()))}', config, f'trainer.accumulate_grad_batches={per_rank}',
                                     f'dist.reduce={reduce}', *args, nproc=count)
        for part in parts:
            if part in one: self.assertEqual(one[part], many[part], f'{part}: {count} ranks, {args}')
        for a, b in zip(one_log['epochs'], many_log['epochs'], strict=True):
            for key in ('val', 'lr', 'loss_scale', 'skipped', 'global_step'): self.assertEqual(a[key], b[key], key)
            for key in a['train']:  # each rank first adds the losses of its own micro-batches
                self.assertAlmostEqual(a['train'][key], b['train'][key], delta=0 if per_rank == 1 else 1e-6 * abs(a['train'][key]), msg=key)
        return one_log

    def test_two_three_and_four_ranks(self):
        for count in (2, 3, 4) if FULL else (3,): self.assertEqualBits(count)  # train.rank_product has every division among four ranks

    @in_full
    def test_eight_ranks(self): self.assertEqualBits(8, 'trainer.max_epochs=1')

    @needs_sim_npu
    def test_a_chip_limits_the_number_of_ranks_and_their_dtypes(self):
        config, out = self.config(TINY), f'output.dir={self.dir}/chip'
        chip = [out, 'device=sim_npu', 'sim_npu.soc=910A', 'trainer.max_steps=2']
        self.assertFails(ranks(3, config, *chip), 2, 'trains with 1, 2, 4 or 8 processes on one machine; 3 were started')
        self.assertFails(ranks(2, config, *chip, 'dist.reduce_dtype=bf16'), 2, 'exchanges no bf16; allowed: fp32')
        self.assertFails(ranks(2, config, *chip, 'precision=bf16-mixed'), 2, 'this chip has no bf16')
        self.assertFalse((self.dir / 'chip').exists())
        self.assertDone(ranks(3, config, *chip, 'dist.backend=gloo', f'output.dir={self.dir}/gloo'))
        self.assertDone(ranks(2, config, *chip))
        self.assertDone(ranks(3, config, *chip, 'sim_npu.soc=910B1', 'dist.reduce_dtype=bf16', f'output.dir={self.dir}/other'))

    @needs_sim_npu
    def test_the_default_strategy_divides_what_the_device_has_no_memory_for(self):
        config = self.config(TINY.replace('device: cpu', 'device: sim_npu').replace('dim: 32', 'dim: 128'))
        # 425,098 parameters take 1.6 MiB; gradients and averages take the same, and the state of AdamW twice as much.
        for hbm, expected in (('32MiB', ''), ('14MiB', 'zero1'), ('9728KiB', 'zero3')):
            out = self.dir / hbm
            result = ranks(2, config, 'trainer.max_steps=2', f'sim_npu.hbm={hbm}', f'output.dir={out}')
            self.assertDone(result)
            self.assertEqual('trainer.strategy=auto' in result[2], expected != '', result[2])
            self.assertIn(f'({expected})' if expected else 'data parallel over Gloo, ordered sums, once a window\n', result[2])
            whole = list(run_dir(out).glob('checkpoints/last/model.safetensors'))
            self.assertEqual(len(whole), 0 if expected == 'zero3' else 1)

    def test_zero_has_the_bits_of_one_process(self):
        """The optimizer's state and averages are in shards, with zero2 also gradients, and with zero3 also parameters. The runs clip,
        average, and have buckets that end inside parameters."""
        runs = [(count, ('dist.bucket_mib=0.02',), 1) for count in (2, 3, 4)]
        runs += [(3, ('optimizer.name=lamb', 'dist.bucket_mib=0.02'), 1), (4, ('optimizer.name=lamb', 'dist.shard_size=2'), 1)]
        runs += [(2, ('optimizer.name=sgd', 'optimizer.momentum=0.9', 'optimizer.lr=0.05'), per_rank) for per_rank in (2, 3)]
        for strategy, (count, words, per_rank) in pairs_of(STRATEGIES, runs):
            self.assertEqualBits(count, f'trainer.strategy={strategy}', *words, per_rank=per_rank, reduce='window' if per_rank == 1 else 'micro_batch')

    def test_complete_parameters_in_shards_have_the_bits_of_one_process(self):
        for shard_by in ('layer', 'parameter_size'):
            self.assertEqualBits(3, 'trainer.strategy=zero1', f'dist.shard_by={shard_by}', 'optimizer.name=lamb')
        self.assertFails(ranks(2, self.config(TINY), f'output.dir={self.dir}/ddp', 'dist.shard_by=layer'), 2, 'allowed with other strategies: elements')

    def test_zero_in_every_precision_with_skipped_steps_checkpointing_and_mixup(self):
        skips = ('precision=16-mixed', 'grad_scaler.init_scale=16777216', 'grad_scaler.growth_interval=3')
        runs = [(3, ('trainer.gradient_checkpointing=blocks', 'data.mixup_alpha=0.4', 'data.cutmix_alpha=1.0'))]
        runs += [(2, (f'precision={precision}',)) for precision in ('bf16-true', '16-true', 'O3', 'bf16-mixed')]
        for strategy, (count, words) in pairs_of(STRATEGIES, [*runs, (2, skips)]):
            log = self.assertEqualBits(count, f'trainer.strategy={strategy}', *words)
            if words == skips: self.assertGreater(sum(epoch['skipped'] for epoch in log['epochs']), 1)
        # Weights that only autocast reads are sent in bf16, if no kernel emulates it.
        self.assertEqualBits(2, 'trainer.strategy=zero3', 'precision=bf16-mixed', 'cpu_low_precision=native', per_rank=2, reduce='micro_batch')

    def test_equal_averages_of_weights_in_shards(self):
        runs = [(2, ('average={kind: swa, start: 0, every: 3}',)), (3, ('average={kind: swa, start: 1}',)),
                (2, ('average={kind: checkpoints, last: 2}', 'checkpoint.save_top_k=1'))]
        for strategy, (count, words) in pairs_of(STRATEGIES, runs):
            self.assertEqualBits(count, f'trainer.strategy={strategy}', *words)
            self.assertIn('ema.safetensors', self.one_process(self.config(TINY), count, *words)[0])

    def test_any_strategy_and_number_of_ranks_reads_the_checkpoints_of_any_other(self):
        """A run goes on with zero3 on two groups of 2 ranks, ddp on 2, one process, zero2 on 3, zero1 on 2, and zero3 on 3. It must have
        the bits of a run of one process that was never interrupted. Three ranks have windows in which one of them has fewer micro-batches."""
        config, out = self.config(TINY), self.dir / 'circle'
        whole, _ = self.end_of('whole', config, 'trainer.accumulate_grad_batches=12', 'trainer.max_epochs=3')
        circle = [('zero3', 4, 1, 2), ('ddp', 2, 2, 2), ('auto', 1, 3, 1), ('zero2', 3, 4, 3), ('zero1', 2, 5, 2), ('zero3', 3, 1000, 3)]
        for strategy, count, steps, divided_by in circle:
            said = ranks(count, config, f'output.dir={out}', 'dist.reduce=micro_batch', f'trainer.accumulate_grad_batches={12 // count}',
                         f'trainer.max_steps={steps}', 'trainer.max_epochs=3', f'trainer.strategy={strategy}', 'dist.bucket_mib=0.05',
                         *([f'dist.shard_size={divided_by}'] if divided_by < count else []), '--resume', 'auto')
            self.assertDone(said)
            names = {path.name for path in (run_dir(out) / 'checkpoints/last').iterdir()}
            for part in ('model', 'optimizer', 'ema'):
                all_ranks = {f'{part}.rank{r:04}.safetensors' for r in range(count)}  # slices, besides the files of numbers and buffers
                slices = {f'{part}.rank{r:04}.safetensors' for r in range(divided_by)}
                divided = strategy == 'zero3' or part != 'model' and strategy.startswith('zero')
                self.assertEqual(names & all_ranks, slices if divided else set())
            if strategy != 'zero3': self.assertIn('model.safetensors', names)
        parts = contents(out)
        for part in PARTS: self.assertEqual(whole[part], parts[part], part)

    def test_masters_in_shards_go_on_anywhere(self):
        """In bf16-true, with every strategy, in groups of 2 ranks, and in one process. Checkpoints have the masters, which are not
        rounded."""
        config, out = self.config(TINY), self.dir / 'masters'
        common = ['precision=bf16-true', 'dist.reduce=micro_batch', 'trainer.max_epochs=3']
        whole, _ = self.end_of('whole', config, *common, 'trainer.accumulate_grad_batches=12')
        circle = [('zero3', 3, 1), ('zero1', 3, 2), ('ddp', 2, 3), ('zero2', 4, 4), ('zero3', 4, 5), ('auto', 1, 1000)]
        for strategy, count, steps in circle if FULL else (circle[0], circle[3], circle[5]):
            said = ranks(count, config, f'output.dir={out}', *common, f'trainer.accumulate_grad_batches={12 // count}', f'trainer.max_steps={steps}',
                         f'trainer.strategy={strategy}', *(['dist.shard_size=2'] if count == 4 else []), '--resume', 'auto')
            self.assertDone(said)
            if strategy != 'zero3': self.assertIn('model.safetensors', {path.name for path in (run_dir(out) / 'checkpoints/last').iterdir()})
        parts = contents(out)
        for part in PARTS: self.assertEqual(whole[part], parts[part], part)

    def test_tools_read_checkpoints_in_slices(self):
        """Three ranks save at every step while the training continues. Tools must read their checkpoints like those of one process."""
        config = self.config(TINY)
        steps = ['checkpoint.every_n_train_steps=1', 'trainer.max_steps=5', 'checkpoint.save_top_k=-1', 'lr_scheduler.T_max=40']
        self.end_of('one', config, 'trainer.accumulate_grad_batches=3', *steps)
        self.end_of('three', config, 'trainer.strategy=zero3', *steps, nproc=3)
        self.assertEqual([m['global_step'] for m in checkpoints(self.dir / 'three')], [1, 2, 3, 4, 5])
        one, three = (run_dir(self.dir / name) / 'checkpoints/last' for name in ('one', 'three'))
        for run in (one, three):
            self.assertDone(npu_tool('weights', '--from', run, '--to', self.dir / f'{run.parts[-5]}_torch', '--as', 'training'))
        for file in sorted((self.dir / 'one_torch').iterdir()):
            self.assertEqual(file.read_bytes(), (self.dir / 'three_torch' / file.name).read_bytes(), file.name)
        self.assertEqual(*[json.loads(npu_tool('eval', '--checkpoint', run, '--json')[1]) | {'checkpoint': ''} for run in (one, three)])
        (three / 'ema.rank0001.safetensors').unlink()
        self.assertFails(npu_tool('eval', '--checkpoint', three), 6, 'ema.rank0001.safetensors: is missing')

    def test_what_shards_cannot_do_is_refused_by_every_rank(self):
        config = self.config(TINY)
        self.assertFails(ranks(2, config, 'trainer.strategy=zero2', 'dump.level=module', f'output.dir={self.dir}/dump'), 2,
                         'trainer.strategy=zero2 gives each rank a part of them; hint: trainer.strategy=ddp, which has the same bits')
        self.assertFails(ranks(2, config, 'trainer.strategy=single', f'output.dir={self.dir}/single'), 2,
                         'single is one process, and npu_train has started 2; allowed with several: auto, ddp, zero1, zero2, zero3')
        self.assertFails(train_app(config, 'trainer.strategy=single', 'trainer.devices=2', f'output.dir={self.dir}/two'), 2,
                         '2 processes, and trainer.strategy is single; allowed with it: 1 or auto')
        self.assertFails(ranks(2, config, 'trainer.strategy=zero3', 'trainer.sync_batchnorm=true', f'output.dir={self.dir}/synced'), 2,
                         'need complete parameters; allowed with them: ddp, zero1, zero2')

    def test_small_buckets(self): self.assertEqualBits(2, 'dist.bucket_mib=0.02')

    def test_several_micro_batches_a_rank(self):
        for per_rank in (2, 3): self.assertEqualBits(2, per_rank=per_rank, reduce='micro_batch')

    def test_loss_scaling_with_skipped_steps(self):
        log = self.assertEqualBits(2, 'precision=16-mixed', 'grad_scaler.init_scale=16777216', 'grad_scaler.growth_interval=3')
        self.assertGreater(sum(epoch['skipped'] for epoch in log['epochs']), 1)

    def test_low_precision_parameters(self):
        for precision in ('bf16-true', '16-true') if FULL else ('16-true',): self.assertEqualBits(2, f'precision={precision}')

    def test_checkpointing(self): self.assertEqualBits(2, 'trainer.gradient_checkpointing=blocks')

    def test_mixup_and_cutmix(self): self.assertEqualBits(3, 'data.mixup_alpha=0.4', 'data.cutmix_alpha=1.0')

    def test_another_number_of_ranks_goes_on_inside_an_epoch(self):
        """4 ranks, then 2 with 2 micro-batches each, then one process with 4 must have the bits of a run that was never interrupted."""
        config, out = self.config(TINY), self.dir / 'parts'
        whole, _ = self.end_of('whole', config, 'trainer.accumulate_grad_batches=4')
        common = ['dist.reduce=micro_batch', f'output.dir={out}']
        self.assertDone(ranks(4, config, *common, 'trainer.max_steps=2', 'lr_scheduler.T_max=40'))
        for count, steps in ((2, 7), (1, 1000)):
            more = [*common, f'trainer.accumulate_grad_batches={4 // count}', f'trainer.max_steps={steps}', '--resume', 'auto']
            self.assertDone(ranks(count, config, *more))
        parts = contents(out)
        for part in PARTS: self.assertEqual(whole[part], parts[part], part)

    def test_native_dropout_goes_on_on_every_rank(self):
        """Each rank draws from its own generators. 9 steps must have the bits of 4 and then 5 steps, interrupted inside an epoch."""
        config, out = self.config(TINY), self.dir / 'resumed'
        native = ['rng=native', 'lr_scheduler.T_max=40']
        whole, _ = self.end_of('whole', config, *native, 'trainer.max_steps=9', nproc=2)
        self.assertDone(ranks(2, config, f'output.dir={out}', *native, 'trainer.max_steps=4'))
        self.assertDone(ranks(2, config, f'output.dir={out}', *native, 'trainer.max_steps=9', '--resume', 'auto'))
        resumed = contents(out)
        for part in [*PARTS, 'rng.safetensors']: self.assertEqual(whole[part], resumed[part], part)
        # With another number of ranks, those above 0 start their generators anew, and the log reports this.
        code, _, said = ranks(3, config, f'output.dir={out}', *native, 'trainer.max_steps=10', '--resume', 'auto')
        self.assertEqual(code, 0, said)
        self.assertIn('the checkpoint has the generators of 2 ranks; this run has 3 ranks', said)

    def test_the_configuration_can_name_the_number_of_processes(self):
        config = self.config(TINY)
        started, _ = self.end_of('devices', config, 'trainer.devices=2', 'trainer.max_steps=4')
        named, _ = self.end_of('nproc', config, 'trainer.max_steps=4', nproc=2)
        for part in PARTS: self.assertEqual(started[part], named[part], part)
        single, _ = self.end_of('single', config, 'trainer.max_steps=4')
        self.assertNotEqual(started['model.safetensors'], single['model.safetensors'])

    def test_ranks_agree_on_the_configuration(self):
        """A program that starts its ranks itself can give them different configurations."""
        config, port = self.config(TINY), self.reserved_port()
        started = []
        for rank in range(2):
            env = os.environ | {'RANK': str(rank), 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}
            words = [BIN / 'train_app', config, f'output.dir={self.dir}/out', f'optimizer.lr=0.00{rank + 1}']
            started.append(self.ended(subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                       text=True)))
        ends = [(process, process.communicate(timeout=300)[1]) for process in started]
        for process, said in ends:
            self.assertEqual(process.returncode, 2, said)
            self.assertIn('rank 1 has optimizer.lr=0.002 where rank 0 has optimizer.lr=0.001', said)
        self.assertFalse((self.dir / 'out').exists())

    def test_one_rank_killed_the_newest_checkpoint_goes_on(self):
        config, out = self.config(TINY), self.dir / 'out'
        long = [config, f'output.dir={out}', 'trainer.max_epochs=1000', 'lr_scheduler.T_max=40', 'checkpoint.every_n_train_steps=3']
        process = self.start(*long, '--nproc', 2)
        self.wait_for(process, lambda: len(checkpoints(out)) > 0, 'a checkpoint')
        victim = next(pid for pid in children(process.pid) if environment(pid).get('RANK') == '1')
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(process.wait(timeout=300), 9, self.said())
        self.assertIn('rank 1', self.said())
        self.assertFalse(any(environment(pid).get('MASTER_PORT') for pid in children(process.pid)))
        at = checkpoints(out)[-1]['global_step']
        self.assertDone(ranks(2, *long, f'trainer.max_steps={at + 2}', '--resume', 'auto'))
        self.assertEqual(checkpoints(out)[-1]['global_step'], at + 2)

    def test_weights_and_running_statistics_of_a_network_with_batch_norm(self):
        for stem in ('imagenet', 'small') if FULL else ('imagenet',):
            self.assertEqualBits(2, f'model={{name: resnet18, stem: {stem}}}', 'optimizer={name: sgd, lr: 0.05}', 'data.train_size=44',
                                 f'trainer.max_epochs={1 if stem == "imagenet" else 2}')

    def test_synchronised_batch_norm(self):
        """In a network of a user, with images of random pixels."""
        self.program, source = BIN.parent / 'tests/own_networks', random.Random(5)
        for phase, count in (('train', 36), ('val', 10)):
            for i in range(count):
                path = self.dir / 'images' / phase / str(i % 2) / f'{i}.png'
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png_of(16, source.randbytes(3 * 16 * 16)))
        transforms = '[{name: center_crop, size: 16}, normalize]'
        self.check_synchronised('model={name: residual}', f'data={{name: image_folder, root: {self.dir}/images, image_size: 16, batch_size: 8, '
                                f'num_workers: 0, train_transforms: {transforms}, val_transforms: {transforms}}}')

    @in_full
    def test_synchronised_batch_norm_of_a_resnet(self): self.check_synchronised('model={name: resnet18, stem: small}', 'data.train_size=36')

    def check_synchronised(self, *network):
        """Two ranks with micro-batches of 4, in the last window one of them without a batch, against one process with batches of 8."""
        config = self.config(TINY)
        common = [*network, 'optimizer={name: sgd, lr: 0.01}', 'trainer.max_epochs=1']
        def losses(name, *args, nproc=1):
            epoch = self.end_of(name, config, *common, *args, nproc=nproc)[1]['epochs'][-1]
            return epoch['train']['loss'], epoch['val']['loss']
        one = losses('one', 'data.batch_size=8')
        synced = losses('synced', 'data.batch_size=4', 'trainer.sync_batchnorm=true', nproc=2)
        apart = losses('apart', 'data.batch_size=4', nproc=2)
        for a, b, c in zip(one, synced, apart, strict=True):
            self.assertLess(abs(a - b), 1e-6 * a)
            self.assertGreater(abs(a - c), 1e-4 * a)


if __name__ == '__main__':
    main()
