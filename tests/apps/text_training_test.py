"""Training on texts: precisions against each other on this repository's documentation, windows of tokens, and short sequences first."""
from model_runs import assert_rounding_apart, early_difference, rows
from programs import SOURCE, ProgramTest, checksums, in_full, main, npu_tool, train_app

NEAR = 0.02  # largest relative difference of the losses of bf16-mixed and fp32

SMALL = '''
seed: 7
device: cpu
precision: 32-true
model: {name: gpt2_tiny, dim: 32}
data: {name: generated_text, train_size: 64, val_size: 8, batch_size: 4, num_workers: 0}
task: {name: language_model}
optimizer: {name: adamw, lr: 0.003}
trainer: {max_epochs: 2, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}
'''


class Texts(ProgramTest):
    def train(self, name, *args): return self.assertDone(train_app(self.config(SMALL), f'output.dir={self.dir}/{name}', *args))

    def fails(self, *words, args): self.assertFails(train_app(self.config(SMALL), f'output.dir={self.dir}/x', *args), 2, *words)

    def documentation(self):
        """Data of this repository's own texts."""
        texts = [SOURCE / 'docs' / f'{name}.md' for name in ('data', 'precision', 'checkpoints')]
        self.assertDone(npu_tool('tokenize', *texts, '--to', self.dir / 'docs'))
        return f'{{name: tokens, train: {self.dir}/docs/train.bin, val: {self.dir}/docs/val.bin, context: 64, batch_size: 32, num_workers: 0}}'

    def loss_of(self, data, precision, seed, *args):
        out = self.dir / f'{precision}_{seed}'
        self.assertDone(train_app(SOURCE / 'configs/gpt2_tiny.yaml', f'data={data}', f'seed={seed}', f'precision={precision}', 'device=cpu', f'output.dir={out}', 'trainer.max_epochs=5', 'trainer.threads=1', 'checkpoint.save_top_k=0', *args))
        return float(rows(out, 'val')[-1]['loss'])

    def test_bf16_begins_as_fp32_does(self):
        data = self.documentation()
        low, full = [self.loss_of(data, precision, 1, 'trainer.max_steps=30', 'trainer.log_every_n_steps=1') for precision in ('bf16-mixed', '32-true')]
        print('bf16-mixed and 32-true:', low, full, early_difference(self.dir / 'bf16-mixed_1', self.dir / '32-true_1'))
        self.assertLess(low, 3.6, 'the network learns too little, so equal losses show nothing')  # ln(256) is 5.5
        self.assertLess(abs(low / full - 1), NEAR)
        assert_rounding_apart(self, self.dir / 'bf16-mixed_1', self.dir / '32-true_1', 0.0001)  # up to 0.00002 with five seeds

    @in_full
    def test_bf16_reaches_the_loss_of_fp32_on_three_seeds(self):
        data = self.documentation()
        # At the configuration's rate of 0.003, a change of the rate by 0.01 % decides when the loss leaves its plateau of 3.3.
        pairs = [[self.loss_of(data, precision, seed, 'lr_scheduler.max_lr=0.001') for precision in ('bf16-mixed', '32-true')] for seed in (1, 2, 3)]
        print('bf16-mixed and 32-true:', pairs)
        for low, full in pairs:
            self.assertLess(max(low, full), 3.3, 'the network learns too little, so equal losses show nothing')  # ln(256) is 5.5
            self.assertLess(abs(low / full - 1), 0.01)  # up to 0.002 with seven pairs
            self.assertNotEqual(low, full)  # shows that the precisions differ

    def test_a_step_has_at_least_so_many_tokens(self):
        said = train_app(self.config(SMALL), f'output.dir={self.dir}/tokens', 'data.batch_tokens=900')
        self.assertDone(said)
        self.assertIn('data.batch_tokens: 4 micro-batches of 4 x 64 tokens on each rank make a step of 1,024 tokens', said[2])
        self.assertIn('effective batch 16 (4 x 4 accumulated x 1 ranks)', said[2])
        self.train('given', 'trainer.accumulate_grad_batches=4')
        self.train('ranks', 'data.batch_tokens=900', '--nproc', '2', 'dist.reduce=micro_batch')
        same = [checksums(self.dir / name)['model.safetensors'] for name in ('tokens', 'given', 'ranks')]
        self.assertEqual(len(set(same)), 1, same)
        self.fails('data.batch_tokens', 'trainer.accumulate_grad_batches=2', 'allowed: one of them', args=('data.batch_tokens=900', 'trainer.accumulate_grad_batches=2'))
        self.fails('no sequences of token ids', args=('data={name: generated, train_size: 64, val_size: 8, batch_tokens: 900}', 'model={name: vit_tiny_cifar10, depth: 1}', 'task={name: classifier}'))

    def test_short_sequences_first(self):
        warmup = 'data.context_warmup={from: 16, steps: 20}'
        self.train('out', warmup)
        found = rows(self.dir / 'out', 'train')
        lengths = [round(float(row['tokens_per_second']) / float(row['samples_per_second'])) for row in found]
        self.assertEqual(lengths, [(16 + 48 * step // 20) // 8 * 8 for step in range(20)] + [64] * 12)
        self.assertIn('bit for bit', self.assertDone(train_app(self.config(SMALL), warmup, '--verify-resume', '--verify-steps', '12')))
        self.train('one', warmup, 'trainer.accumulate_grad_batches=2')
        self.train('two', warmup, '--nproc', '2')
        self.assertEqual(*(checksums(self.dir / out)['model.safetensors'] for out in ('one', 'two')))
        self.train('plain')
        self.assertNotEqual(*(checksums(self.dir / out)['model.safetensors'] for out in ('out', 'plain')))
        self.assertEqual({float(row['loss']) > 0 for row in rows(self.dir / 'out', 'val')}, {True})
        self.fails('data.context_warmup', 'from is 64 and samples have 64 tokens; allowed: 8 to 63', args=('data.context_warmup={from: 64, steps: 3}',))
        self.fails('trainer.static_shapes', args=(warmup, 'trainer.static_shapes=true'))
        self.fails('not texts that can be shortened', args=('data={name: generated_questions, train_size: 64, val_size: 8, context_warmup: {from: 16, steps: 3}}', 'model={name: internvl_tiny}'))

    def test_a_context_that_the_model_has_no_positions_for(self):
        for model in ('gpt2_tiny', 'llama_tiny'):
            self.fails('[data.context] samples of 65 tokens, and the model has positions for 64 (model.context)', args=(f'model={{name: {model}}}', 'data.context=65'))
        self.fails('positions for 64 (model.context)', args=('model={name: clip_tiny}', f'data={{name: image_text, root: {self.dir}}}', 'task={name: contrastive}'))


if __name__ == '__main__': main()
