"""Language models with the programs: against transformers with equal weights, and every part of a run that images have too.
The Python with transformers is NPU_TRAIN_MODELS_PYTHON, .venv/models (scripts/setup --dev), or this one."""
import json
import math
import pathlib
import random
import re
import struct
import unittest

from model_runs import RECIPE, TextRuns, rows
from peers import MODELS_PYTHON, Peer
from programs import SOURCE, ProgramTest, checksums, main, needs_onnxruntime, needs_sim_npu, npu_tool, run_dir, train_app

try:
    import numpy
    import torch
    import python_llama as reference
except ImportError:
    torch = None

PEER = Peer(MODELS_PYTHON, transformers='import any_torchvision, numpy\nfrom transformers import GPT2LMHeadModel, LlamaForCausalLM')
SCRIPT = pathlib.Path(__file__).with_name('python_language_models.py')
LOGITS, LOSSES = 1e-5, 1e-4  # largest differences: of logits, relative to the largest logit; of each loss, relative to the loss
SIZES = {'vocab_size': 97, 'context': 21, 'layers': 3, 'heads': 4, 'dim': 24}
LLAMA = SIZES | {'kv_heads': 2, 'hidden': 40, 'rope_theta': 300, 'norm_eps': 1e-3}


@unittest.skipUnless(PEER.has('transformers'), 'transformers is not installed (pip install transformers; NPU_TRAIN_MODELS_PYTHON)')
class AgainstTransformers(ProgramTest):
    def python(self, what, jobs):
        (self.dir / 'jobs.json').write_text(json.dumps(jobs))
        code, out, error = PEER.run(SCRIPT, what, self.dir / 'jobs.json')
        self.assertEqual(code, 0, out + error)
        return json.loads(out.splitlines()[-1])

    def job(self, name, sizes, folder=''):
        folder = self.dir / (folder or name)
        folder.mkdir()
        source = random.Random(3)
        texts = [[source.randrange(sizes['vocab_size']) for _ in range(length)] for length in (1, 7, 13)]
        return {'name': name, 'network': name, 'options': sizes, 'folder': str(folder), 'texts': texts}

    def generate(self, model, weights, text, *more):
        return npu_tool('generate', *model, '--weights', weights, '--device', 'cpu', '--tokens', ','.join(map(str, text)), *more)

    def check_logits(self, job):
        folder, model = pathlib.Path(job['folder']), ('--model', job['network'], *(f'model.{k}={json.dumps(v)}' for k, v in job['options'].items()))
        expected = self.python('make', [job])[job['name']]
        checks = []
        for file in ('state.bin', 'pretrained'):
            paths = [folder / f'{file}_{i}.npy' for i in range(len(job['texts']))]
            for path, text in zip(paths, job['texts']): self.assertDone(self.generate(model, folder / file, text, '--max-new-tokens', '0', '--logits', path))
            checks.append(job | {'name': file, 'logits': [str(p) for p in paths]})
        ours = folder / 'ours.safetensors'
        self.assertDone(npu_tool('weights', '--from', folder / 'pretrained', '--to', ours, '--as', 'torchvision'))
        self.assertDone(npu_tool('weights', '--from', ours, '--to', folder / 'back.pt', '--as', 'hf'))
        checks.append(job | {'name': 'back', 'file': str(folder / 'back.pt')})
        differences = self.python('load', checks)
        self.assertEqual(len(differences), 3)
        for name, difference in differences.items(): self.assertLess(difference, LOGITS, name)
        print(job['name'], 'largest difference of logits', max(differences.values()))
        for text, greedy in zip(job['texts'], expected['greedy'], strict=True):
            for cache in ((), ('--no-cache',)):
                said = self.generate(model, ours, text, '--max-new-tokens', expected['added'], '--temperature', '0', '--json', *cache)
                self.assertEqual(json.loads(self.assertDone(said))['tokens'], greedy)

    def check_losses(self, job, steps=20, batch=4, length=17):
        source = random.Random(4)
        data = self.dir / 'tokens.bin'  # most of the time, each token follows from the two before it
        tokens = [1, 2]
        while len(tokens) < steps * batch * length + 1: tokens.append((3 * tokens[-1] + tokens[-2]) % 31 if source.random() < 0.8 else source.randrange(job['options']['vocab_size']))
        data.write_bytes(struct.pack(f'<{len(tokens)}H', *tokens))
        self.python('make', [job])
        training = {'lr': 0.003, 'weight_decay': 0.1, 'clip': 1.0, 'steps': steps, 'batch': batch, 'length': length, 'tokens': str(data)}
        expected = self.python('train', [job | training])[job['name']]
        config = self.config(f'''
device: cpu
precision: 32-true
model: {json.dumps(dict(name=job['network'], weights=job['folder'] + '/pretrained', **job['options']))}
data: {{name: tokens, train: {data}, context: {length}, batch_size: {batch}, shuffle: false, num_workers: 0}}
task: {{name: language_model}}
optimizer: {{name: adamw, lr: 0.003, weight_decay: 0.1}}
trainer: {{max_epochs: 1, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}}
''')
        self.assertDone(train_app(config, f'output.dir={self.dir}/out'))
        losses = [float(row['loss']) for row in rows(self.dir / 'out', 'train')]
        self.assertEqual(len(losses), steps)
        worst = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
        print(job['name'], 'largest relative difference of', steps, 'losses', worst)
        self.assertLess(worst, LOSSES)
        self.assertLess(losses[-1], losses[0] - 0.1, 'the network does not learn, so equal losses show nothing')

    def test_llama_logits(self):
        for tied in (False, True):
            with self.subTest(tied=tied): self.check_logits(self.job('llama', LLAMA | {'tie_embeddings': tied}, folder=f'llama_{tied}'))

    def test_llama_losses(self): self.check_losses(self.job('llama', LLAMA))

    def test_gpt2_logits(self): self.check_logits(self.job('gpt2', SIZES))

    def test_gpt2_losses(self): self.check_losses(self.job('gpt2', SIZES))


@unittest.skipIf(torch is None, 'the Python package torch is not installed')
class AgainstPyTorch(ProgramTest):
    def test_scaled_rotary_positions_and_config_json(self):
        scaling = {'type': 'llama3', 'factor': 4, 'low_freq_factor': 1, 'high_freq_factor': 3, 'original_context': 40}
        sizes = reference.SIZES | {'dim': 64, 'heads': 2, 'kv_heads': 1, 'rope_theta': 100}
        unscaled = reference.frequencies(sizes, 32)
        kinds = (reference.frequencies(sizes | {'rope_scaling': scaling}, 32) / unscaled).tolist()
        self.assertEqual({'kept' if k == 1 else 'divided' if k == 0.25 else 'between' for k in kinds}, {'kept', 'divided', 'between'})
        weights = reference.base(sizes, seed=5)
        folder = self.dir / 'base'
        folder.mkdir()
        torch.save(weights, folder / 'pytorch_model.bin')
        text = list(range(1, 23))
        wanted = reference.logits(weights, {}, 1, sizes | {'rope_scaling': scaling}, torch.tensor([text]))[0]
        keys = lambda **changes: [f'model.{k}={json.dumps(v)}' for k, v in (sizes | {'rope_scaling': scaling} | changes).items()]
        logits = lambda *args: npu_tool('generate', '--model', 'llama', *args, '--weights', folder, '--device', 'cpu', '--tokens', ','.join(map(str, text)), '--max-new-tokens', '0', '--logits', self.dir / 'l.npy')
        difference = lambda: ((torch.from_numpy(numpy.load(self.dir / 'l.npy')) - wanted).abs().max() / wanted.abs().max()).item()
        self.assertDone(logits(*keys()))
        self.assertLess(difference(), LOGITS)
        self.assertDone(logits(*keys(rope_scaling={'type': 'none'})))
        self.assertGreater(difference(), 100 * LOGITS)
        config = {'model_type': 'llama', 'num_attention_heads': 2, 'num_key_value_heads': 1, 'max_position_embeddings': 24, 'rms_norm_eps': 1e-3, 'rope_theta': 100.0,
                  'rope_scaling': {'rope_type': 'llama3', 'factor': 4.0, 'low_freq_factor': 1.0, 'high_freq_factor': 3.0, 'original_max_position_embeddings': 40}}
        (folder / 'config.json').write_text(json.dumps(config))
        self.assertDone(logits(*keys()))
        self.assertFails(logits(*keys(rope_theta=10000, rope_scaling={'type': 'none'})), 6, 'rope_theta is 100, model.rope_theta is 10000', 'rope_type is llama3, model.rope_scaling.type is none')
        self.assertFails(train_app(SOURCE / 'configs/llama_tiny.yaml', f'model={{name: llama, weights: {folder}, vocab_size: 61, heads: 4, kv_heads: 1, dim: 64, hidden: 40, layers: 2}}', 'output.dir=""'), 6,
                         'num_attention_heads is 2, model.heads is 4', 'set model.heads=2')
        self.assertDone(logits(*keys(norm_eps=2e-3), 'model.weights_strict=false'))


# A decoder that trains in seconds, with dropout.
SMALL = RECIPE + '''
model: {{name: gpt2_tiny, context: 32, dim: 32, dropout: 0.1}}
data: {{name: generated_text, train_size: 160, val_size: 24, context: 32, batch_size: 8, num_workers: 0}}
task: {{name: language_model}}
'''


class Runs(TextRuns, ProgramTest):
    changed = 'model.dropout=0', 'model={name: gpt2_tiny, context: 32, dim: 32, heads: 4}'

    def text(self, precision='32-true'): return self.config(SMALL.format(precision=precision))

    def train(self, name, *args, precision='32-true'):
        return self.assertDone(train_app(self.text(precision), f'output.dir={self.dir}/{name}', *args))

    def test_the_share_of_the_speed_of_products(self):
        """trainer.mfu reports three times the FLOPs of a forward pass for each sample, and their share of the measured speed."""
        said = train_app(self.text(), f'output.dir={self.dir}/out', 'trainer.mfu=true')
        self.assertDone(said)
        self.assertRegex(said[1], r'epoch 2 done: .* tokens/s, .*, [\d.e+-]+ GFLOP/s \(MFU \d+\.\d %\)')
        products, = re.findall(r'FLOPs per sample, products at ([\d.e+]+) GFLOP/s', said[2])
        shape = ['model={name: gpt2_tiny, context: 32, dim: 32}']
        flops = json.loads(self.assertDone(npu_tool('summary', self.text(), *shape, '--json')))['flops_per_image']
        for epoch in json.loads((run_dir(self.dir / 'out') / 'history.json').read_text())['epochs']:
            self.assertAlmostEqual(epoch['flops_per_second'] / epoch['samples_per_second'] / (3 * flops), 1, delta=1e-9)
            self.assertAlmostEqual(1e-9 * epoch['flops_per_second'] / epoch['mfu'] / float(products), 1, delta=1e-4)
        for row in rows(self.dir / 'out', 'epoch'): self.assertGreater(float(row['mfu']), 0)

    def test_perplexity_and_tokens_in_progress_and_logs(self):
        said = self.train('out')
        self.assertRegex(said, r'loss \d\.\d{4} .*perplexity \d+\.\d\d \(\d+\.\d\d\).* \d+ tokens/s')
        self.assertRegex(said, r'epoch 2 done: train  loss .*  perplexity \d+\.\d\d  \| val .*\| \d+ tokens/s, ')
        self.assertNotIn('samples/s', said)
        for phase in ('train', 'epoch', 'val'):
            found = rows(self.dir / 'out', phase)
            for row in found:
                self.assertAlmostEqual(float(row['perplexity']), math.exp(float(row['loss'])), delta=1e-9 * float(row['perplexity']))
                if phase != 'val': self.assertAlmostEqual(float(row['tokens_per_second']), 32 * float(row['samples_per_second']), delta=1e-6 * float(row['tokens_per_second']))
        history = json.loads((run_dir(self.dir / 'out') / 'history.json').read_text())['epochs']
        self.assertAlmostEqual(history[1]['tokens_per_second'], 32 * history[1]['samples_per_second'], delta=1e-3)
        self.assertLess(history[1]['val']['perplexity'], history[0]['val']['perplexity'])
        self.train('by_name', 'task.metrics=[perplexity]', 'trainer.max_steps=3')
        self.assertEqual(set(rows(self.dir / 'by_name', 'val')[0]) & {'acc', 'perplexity'}, {'perplexity'})

    def test_the_best_checkpoint_is_that_of_the_smallest_perplexity(self):
        self.train('out', 'checkpoint.monitor=val/perplexity', 'lr_scheduler={name: multistep, interval: step, milestones: [40], gamma: 100}', 'average.enabled=false', 'trainer.max_epochs=3')
        val = [float(row['perplexity']) for row in rows(self.dir / 'out', 'val')]
        self.assertLess(val.index(min(val)), 2, 'the last one is the best, which shows nothing')
        best = json.loads((run_dir(self.dir / 'out') / 'checkpoints' / 'best' / 'manifest.json').read_text())
        self.assertEqual(best['global_step'], 20 * (1 + val.index(min(val))))

    def test_resume_bit_for_bit(self):
        llama = 'model={name: llama_tiny, context: 32, dim: 32, heads: 4, kv_heads: 2}'
        for precision, *model in (('32-true',), ('16-mixed',), ('bf16-mixed',), ('bf16-true', llama), ('16-mixed', llama)):
            with self.subTest(precision, model=model):
                self.assertIn('bit for bit', self.assertDone(train_app(self.text(precision), *model, '--verify-resume', '--verify-steps', '8')))

    def test_16_mixed_skips_and_learns(self):
        self.train('half', precision='16-mixed')
        self.train('full')
        found = rows(self.dir / 'half', 'train')
        self.assertGreater(sum(row['skipped'] == '1' for row in found), 2)
        self.assertLess(sum(row['skipped'] == '1' for row in found), 15)
        last = [float(rows(self.dir / name, 'val')[-1]['loss']) for name in ('half', 'full')]
        self.assertLess(abs(last[0] - last[1]) / last[1], 0.03)  # up to 0.009 with five seeds, because of the skipped steps

    def test_two_ranks_with_unequal_tokens_equal_one_process(self):
        """Spaces do not count, so every micro-batch has another number of tokens."""
        same = ('deterministic=true', 'rng=portable', 'task.ignore_index=32', 'data.batch_size=4', 'data.train_size=75')
        self.train('one', *same, 'trainer.accumulate_grad_batches=2')
        self.train('two', *same, '--nproc', '2')
        one, two = checksums(self.dir / 'one'), checksums(self.dir / 'two')
        for part in ('model', 'optimizer', 'ema'): self.assertEqual(one[f'{part}.safetensors'], two[f'{part}.safetensors'], part)
        for phase in ('train', 'val'):
            for a, b in zip(rows(self.dir / 'one', phase), rows(self.dir / 'two', phase), strict=True):
                for key in ('loss', 'perplexity', 'acc'): self.assertAlmostEqual(float(a[key]), float(b[key]), delta=1e-6 * float(a[key]) + 1e-9, msg=(phase, key))
        tokens = {round(float(row['tokens_per_second']) / float(row['samples_per_second']), 3) for row in rows(self.dir / 'two', 'train')}
        self.assertGreater(len(tokens), 5, 'the numbers of tokens do not differ, so equal results show nothing')

    @needs_onnxruntime
    def test_export_with_free_batch_and_length(self):
        for name in ('gpt2_tiny', 'llama_tiny'):
            with self.subTest(name): self.check_export(name)

    def check_export(self, name):
        self.train(name, 'trainer.max_steps=2', f'model={{name: {name}, context: 32, dim: 32}}')
        found = json.loads(self.assertDone(npu_tool('export', '--checkpoint', run_dir(self.dir / name), '--to', self.dir / 'm.onnx', '--dynamic', 'batch,tokens', '--check', '--json')))
        self.assertEqual(found['inputs'], [{'name': 'input', 'dtype': 'int64', 'shape': ['batch', 'tokens']}])
        self.assertEqual(found['outputs'][0]['shape'], ['batch', 'tokens', 256])
        for check in found['checks']: self.assertTrue(check['agrees'] and check['difference'] < 1e-5, check)

    def test_benchmarks_of_a_model_and_of_a_configuration(self):
        short = ('--what', 'step,train,infer', '--steps', '2', '--warmup', '1', '--infer-steps', '2', '--no-machine', '--json')
        for what in (('--model', 'gpt2_tiny', '--batch', '2'), ('--model', 'llama_tiny', '--batch', '2'), (SOURCE / 'configs/llama_tiny.yaml',)):
            found = json.loads(self.assertDone(npu_tool('bench', *what, *short)))
            self.assertEqual([row['section'] for row in found['rows'] if 'failure' in row and row['section'] != 'power'], [])
            speeds = {row['section']: row['samples_per_s'] for row in found['rows'] if 'samples_per_s' in row}
            self.assertEqual(set(speeds), {'step', 'train', 'infer'})
            self.assertIn('tokens', found['input'])
        self.assertFails(npu_tool('bench', self.text(), 'task={name: classifier}', *short[2:]), 2, "'gpt2_tiny' has no classes", 'language_model')

    @needs_sim_npu
    def test_predicted_memory_is_what_a_run_takes(self):
        model = ('model={name: gpt2_tiny, context: 64, dim: 128, heads: 4, layers: 3}', 'data.context=64', 'average.enabled=false', 'device=sim_npu')
        found = json.loads(self.assertDone(npu_tool('memory', self.text(), *model, '--check', '4,24', '--json', cwd=self.dir)))
        self.assertEqual([row['batch_size'] for row in found], [4, 24])
        for row in found: self.assertLess(abs(row['error']), 0.001)  # measured: 1e-6

    def test_tokenize(self):
        (self.dir / 'a.txt').write_bytes('caf\u00e9\n'.encode())
        (self.dir / 'b.txt').write_bytes(b'0123456789')
        (self.dir / 'empty.txt').write_bytes(b'')
        texts, to = [self.dir / f'{name}.txt' for name in ('a', 'empty', 'b')], self.dir / 'tokens'
        found = json.loads(self.assertDone(npu_tool('tokenize', *texts, '--to', to, '--val-fraction', '0.3', '--json')))
        self.assertEqual((found['train_tokens'], found['val_tokens'], found['empty_files']), (13, 5, 1))
        read = lambda name: list(struct.unpack('<256i', (to / name).read_bytes()[:1024])[:3]) + list(struct.unpack(f'<{(len((to / name).read_bytes()) - 1024) // 2}H', (to / name).read_bytes()[1024:]))
        self.assertEqual(read('train.bin') + read('val.bin'), [20240520, 1, 13, *'caf\u00e9\n'.encode(), 0, *b'012345', 20240520, 1, 5, *b'6789', 0])
        self.assertFails(npu_tool('tokenize', *texts, '--to', to, '--val-fraction', '0'), 2, 'val.bin exists', 'remove that file')
        (self.dir / 'c.txt').write_bytes(b'ab\0c')
        self.assertFails(npu_tool('tokenize', self.dir / 'c.txt', '--to', self.dir / 'new'), 3, 'c.txt: byte 2 is 0')
        self.assertFalse((self.dir / 'new').exists())

    def test_mistakes_of_generate(self):
        self.train('out', 'trainer.max_steps=1')
        checkpoint = ('--checkpoint', run_dir(self.dir / 'out'))
        self.assertFails(npu_tool('generate', *checkpoint), 2, 'exactly one of --prompt TEXT and --tokens')
        self.assertFails(npu_tool('generate', *checkpoint, '--prompt', 'a', '--weights', 'x.pt'), 2, 'of a checkpoint; allowed: plain, ema')
        self.assertFails(npu_tool('generate', *checkpoint, '--tokens', '1,256'), 2, 'token 1 of the prompt is 256; allowed: 0 to 255')
        self.assertFails(npu_tool('generate', *checkpoint, '--prompt', 'a', '--logits', self.dir / 'l.npy', '--max-new-tokens', '32'), 2, '--logits needs one forward of all tokens: 33, and the model takes 32')
        said = json.loads(self.assertDone(npu_tool('generate', *checkpoint, '--prompt', 'the dog', '--max-new-tokens', '60', '--json')))  # exceeds the context
        self.assertEqual(said['prompt_tokens'], 7)
        # Leaves only the most probable token to draw; otherwise 256 are nearly equal.
        start = ('generate', *checkpoint, '--prompt', 'the dog', '--max-new-tokens', '8', '--json')
        drawn = lambda *args: json.loads(self.assertDone(npu_tool(*start, *args)))['tokens']
        likeliest = drawn('--temperature', '0')
        for only in (('--top-k', '1'), ('--top-p', '1e-9')): self.assertEqual(drawn(*only), likeliest, only)
        for every in (('--top-k', '256'), ('--top-p', '1')): self.assertEqual(drawn(*every), said['tokens'][:8], every)
        self.assertNotEqual(said['tokens'][:8], likeliest)
        self.assertEqual(said, said | json.loads(self.assertDone(npu_tool('generate', *checkpoint, '--prompt', 'the dog', '--max-new-tokens', '60', '--no-cache', '--json'))) | {'tokens_per_second': said['tokens_per_second']})


if __name__ == '__main__': main()
