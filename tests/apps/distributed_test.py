"""Training over several processes, against one process that accumulates the micro-batches of all of them: equal bits."""
import json
import subprocess
import unittest

from programs import BIN, ProgramTest, checksums, main, run_dir, train_app

PARTS = ['model.safetensors', 'optimizer.safetensors', 'ema.safetensors']

# 20 global micro-batches of 8 samples an epoch, the last one of 3: no number of ranks divides them, and the last window is never full.
TINY = '''
seed: 7
device: cpu
deterministic: true
rng: portable
precision: 32-true
model: {name: vit_tiny_cifar10, depth: 2, dim: 32, heads: 2, patch_size: 8, dropout: 0.1}
data: {name: generated, train_size: 155, val_size: 50, batch_size: 8, num_workers: 0}
optimizer: {name: adamw, lr: 0.002}
lr_scheduler: {name: cosine, interval: step, T_max: 40}
ema: {enabled: true, decay: 0.9}
trainer: {max_epochs: 2, threads: 1, gradient_clip_val: 0.5}
checkpoint: {every_n_epochs: 1}
'''


def ranks(test, count, config, *args):
    """Runs train_app as `count` ranks; (exit code, stdout, stderr) of each."""
    processes = []
    out = []
    launched = subprocess.run([str(BIN / 'train_app'), str(config), '--nproc', str(count), *map(str, args)], capture_output=True, text=True,
                              timeout=600, stdin=subprocess.DEVNULL)
    return launched.returncode, launched.stdout, launched.stderr


class Distributed(ProgramTest):
    def end_of(self, name, config, *args, nproc=1):
        out = self.dir / name
        result = ranks(self, nproc, config, f'output.dir={out}', *args) if nproc > 1 else train_app(config, f'output.dir={out}', *args)
        self.assertDone(result)
        return checksums(out), json.loads((run_dir(out) / 'history.json').read_text())

    def assertEqualBits(self, count, *args, per_rank=1, reduce='window', parts=PARTS):
        """One process that accumulates count x per_rank micro-batches, and `count` ranks with per_rank each."""
        config = self.config(TINY)
        one, one_log = self.end_of(f'one{count}', config, f'trainer.accumulate_grad_batches={count * per_rank}', *args)
        many, many_log = self.end_of(f'many{count}', config, f'trainer.accumulate_grad_batches={per_rank}', f'dist.reduce={reduce}', *args,
                                     nproc=count)
        for part in parts:
            if part in one: self.assertEqual(one[part], many[part], f'{part}: {count} ranks, {args}')
        for a, b in zip(one_log['epochs'], many_log['epochs'], strict=True):
            for key in ('train/loss', 'train/acc1', 'val/loss', 'val/acc1', 'lr', 'global_step'):
                if key in a: self.assertEqual(a[key], b[key], key)

    def test_two_three_and_four_ranks(self):
        for count in (2, 3, 4): self.assertEqualBits(count)

    def test_small_buckets(self): self.assertEqualBits(2, 'dist.bucket_mib=0.02')

    def test_several_micro_batches_a_rank(self):
        for per_rank in (2, 3): self.assertEqualBits(2, per_rank=per_rank, reduce='micro_batch')

    def test_loss_scaling_with_skipped_steps(self):
        self.assertEqualBits(2, 'precision=16-mixed', 'grad_scaler.init_scale=16777216', 'grad_scaler.growth_interval=3')

    def test_low_precision_parameters(self):
        for precision in ('bf16-true', '16-true'): self.assertEqualBits(2, f'precision={precision}')

    def test_checkpointing(self): self.assertEqualBits(2, 'trainer.gradient_checkpointing=blocks')

    def test_mixup_and_cutmix(self): self.assertEqualBits(3, 'data.mixup_alpha=0.4', 'data.cutmix_alpha=1.0')

    def test_weights_of_a_network_with_batch_norm(self):
        self.assertEqualBits(2, 'model={name: resnet18, stem: small}', 'optimizer={name: sgd, lr: 0.05}', 'data.train_size=44',
                             'trainer.check_val_every_n_epoch=0', parts=['optimizer.safetensors'])


if __name__ == '__main__':
    main()
