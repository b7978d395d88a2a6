"""A language model on documents of different lengths: loss and accuracy against a plain count over the tokens of each document alone, through batches
that are padded unevenly, accumulation and ranks; and micro-batches in which nothing counts."""
import json
import math
import random
import unittest

from model_runs import rows
from programs import FULL, ProgramTest, in_full, main, npu_tool, run_dir, train_app

try:
    import torch
except ImportError:
    torch = None

CONFIG = '''
seed: 3
device: cpu
precision: 32-true
model: {{name: gpt2, vocab_size: 40, context: 24, layers: 1, heads: 2, dim: 16}}
data: {{name: documents, train: {dir}/train.jsonl, val: {dir}/val.jsonl, context: 24, begin_token: 39, batch_size: 4, val_batch_size: 3, num_workers: 0}}
task: {{name: language_model}}
optimizer: {{name: sgd, lr: 0, momentum: 0}}
trainer: {{max_epochs: 1, accumulate_grad_batches: 2, threads: 1, log_every_n_steps: 1, num_sanity_val_steps: 0}}
output: {{logger: [csv]}}
'''


class Documents(ProgramTest):
    def documents(self, name, count, seed):
        """Writes lines of the three kinds. Returns, for each, its tokens and how many of them are given."""
        source, out, lines = random.Random(seed), [], []
        ids = lambda least, most: [source.randrange(1, 39) for _ in range(source.randrange(least, most))]
        for i in range(count):
            if i % 3 == 0:
                tokens = ids(1, 20)
                lines.append({'tokens': tokens})
                out.append(([39, *tokens, 0], 1))
            else:
                prompt, completion = ids(0, 12), ids(1, 3 if i % 2 else 9)
                lines.append({'prompt': prompt, 'completion': completion})
                out.append(([39, *prompt, *completion, 0], 1 + len(prompt)))
        (self.dir / name).write_text(''.join(json.dumps(line) + '\n' for line in lines))
        return out

    def run_of(self, name, *args):
        said = train_app(self.config(CONFIG.format(dir=self.dir)), f'output.dir={self.dir}/{name}', *args)
        self.assertDone(said)
        return said

    @unittest.skipIf(torch is None, 'the Python package torch is not installed')
    def test_loss_and_accuracy_are_a_plain_count_over_tokens(self):
        documents = {'epoch': self.documents('train.jsonl', 33, 1), 'val': self.documents('val.jsonl', 13, 2)}
        self.run_of('one')
        self.assertDone(npu_tool('export', '--checkpoint', run_dir(self.dir / 'one'), '--to', self.dir / 'm.pt', '--dynamic', 'batch,tokens'))
        network = torch.jit.load(str(self.dir / 'm.pt')).eval()
        wanted = {}
        for phase, texts in documents.items():
            loss, right, count = 0.0, 0, 0
            for tokens, given in texts:
                with torch.no_grad(): logits = network(torch.tensor([tokens]))[0]
                target = torch.tensor(tokens[given:])
                logits = logits[given - 1:-1]
                loss += torch.nn.functional.cross_entropy(logits, target, reduction='sum').item()
                right += logits.argmax(1).eq(target).sum().item()
                count += len(target)
            wanted[phase] = loss / count, 100 * right / count
        self.assertGreater(wanted['val'][1], 0, 'nothing is right, so equal accuracies show little')
        self.run_of('alone', 'data.batch_size=1', 'data.val_batch_size=1', 'trainer.accumulate_grad_batches=1')
        self.run_of('padded', 'trainer.static_shapes=true')
        self.run_of('ranks', '--nproc', '2')
        packed = 'data.packing=true', 'data.batch_size=3'
        more = {'packed': ('trainer.gradient_checkpointing=blocks', 'trainer.static_shapes=true'), 'packed_ranks': ('--nproc', '2'), 'only_packed': ()}
        if not FULL: del more['only_packed']
        said = {name: self.run_of(name, *packed, *words) for name, words in more.items()}['packed']
        self.assertRegex(said[1] + said[2], 'data.packing: 33 documents in [12][0-9] training samples of 24 tokens')
        for name in ('one', 'alone', 'padded', 'ranks', *more):
            for phase, (loss, accuracy) in wanted.items():
                with self.subTest(run=name, phase=phase):
                    row = rows(self.dir / name, phase)[-1]
                    self.assertAlmostEqual(float(row['loss']) / loss, 1, delta=1e-5)
                    self.assertAlmostEqual(float(row['acc']), accuracy, delta=1e-4)
                    self.assertAlmostEqual(float(row['perplexity']) / math.exp(loss), 1, delta=1e-5)

    @in_full
    def test_a_resumed_run_continues_with_the_same_packed_samples(self):
        for name in ('train.jsonl', 'val.jsonl'): self.documents(name, 33, 4)
        said = train_app(self.config(CONFIG.format(dir=self.dir)), f'output.dir={self.dir}/resumed', 'data.packing=true', 'data.batch_size=2', 'optimizer.lr=0.1', 'trainer.max_epochs=20',
                         '--verify-resume', '--verify-steps', '6')
        self.assertIn('bit for bit', self.assertDone(said))

    def test_steps_in_which_nothing_counts_are_skipped_and_counted(self):
        lines = [{'tokens': [5, 6, 7]}] * 2 + [{'tokens': [0]}] * 2 + [{'tokens': [8, 9]}] * 2  # [0]: only the end_token, which comes first and is not predicted
        for name in ('train.jsonl', 'val.jsonl'): (self.dir / name).write_text(''.join(json.dumps(line) + '\n' for line in lines))
        arguments = ('data.begin_token=-1', 'data.batch_size=2', 'data.shuffle=false', 'trainer.accumulate_grad_batches=1', 'optimizer.lr=0.1')
        for name, more in {'one': (), 'ranks': ('--nproc', '2', 'data.batch_size=1')}.items():
            said = self.run_of(name, *arguments, *more)
            self.assertIn('step 1 skipped: no target in it counts', said[1])
            history = json.loads((run_dir(self.dir / name) / 'history.json').read_text())
            self.assertEqual((history['global_step'], history['skipped_steps']), (2, 1))
            self.assertTrue(math.isfinite(history['final_val']['loss']))
        (self.dir / 'train.jsonl').write_text(json.dumps({'tokens': [0]}) + '\n')
        said = train_app(self.config(CONFIG.format(dir=self.dir)), f'output.dir={self.dir}/none', 'data.begin_token=-1', 'data.batch_size=1', 'trainer.max_epochs=-1', 'trainer.max_steps=5')
        self.assertFails(said, 3, 'no target of epoch 0 counts')


if __name__ == '__main__': main()
