"""Low-rank adapters and frozen weights with the programs: against plain PyTorch with equal weights (skipped without torch in this Python), and
every part of a run."""
import csv
import json
import random
import struct
import unittest

from model_runs import assert_trained_alike
from programs import NO_ONNXRUNTIME, ProgramTest, contents, has_onnxruntime, main, needs_sim_npu, npu_tool, run_dir, train_app

try:
    import numpy
    import torch
    import python_llama as reference
except ImportError:
    torch = None

RANK, ALPHA = 3, 6
LORA = 'model.lora={rank: 2, alpha: 4, dropout: 0.1, targets: [attention.*, down]}'
# A Llama that trains in seconds, with EMA and a loss scale that overflows at first.
SMALL = '''
seed: 7
device: cpu
precision: {precision}
model: {{name: llama_tiny, context: 32, dim: 32, hidden: 48, heads: 4, kv_heads: 2}}
data: {{name: generated_text, train_size: 96, val_size: 16, context: 32, batch_size: 8, num_workers: 0}}
task: {{name: language_model}}
optimizer: {{name: adamw, lr: 0.02}}
grad_scaler: {{init_scale: 16777216, growth_interval: 5}}
average: {{enabled: true, decay: 0.5}}
trainer: {{max_epochs: 1, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}}
'''


def rows(out, phase):
    with open(run_dir(out) / 'metrics.csv') as file: return [row for row in csv.DictReader(file) if row['phase'] == phase]


def tensors(path):
    """{name: bytes} of a safetensors file."""
    content = path.read_bytes()
    length = struct.unpack('<Q', content[:8])[0]
    header = json.loads(content[8:8 + length])
    return {n: content[8 + length + t['data_offsets'][0]:8 + length + t['data_offsets'][1]] for n, t in header.items() if n != '__metadata__'}


@unittest.skipIf(torch is None, 'the Python package torch is not installed')
class AgainstPyTorch(ProgramTest):
    STEPS, BATCH, LENGTH = 10, 4, 17

    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        self.weights = reference.base(reference.SIZES, seed=1)
        torch.save(self.weights, self.dir / 'base.bin')
        source = random.Random(4)
        tokens = [1, 2]  # most of the time, each token follows from the two before it
        while len(tokens) < self.STEPS * self.BATCH * self.LENGTH + 1: tokens.append((3 * tokens[-1] + tokens[-2]) % 31 if source.random() < 0.8 else source.randrange(61))
        self.tokens = torch.tensor(tokens)
        (self.dir / 'tokens.bin').write_bytes(struct.pack(f'<{len(tokens)}H', *tokens))

    def run_config(self, lora):
        return self.config(f'''
device: cpu
precision: 32-true
model: {json.dumps(dict(name='llama', weights=f'{self.dir}/base.bin', lora=lora, **reference.SIZES))}
data: {{name: tokens, train: {self.dir}/tokens.bin, context: {self.LENGTH}, batch_size: {self.BATCH}, shuffle: false, num_workers: 0}}
task: {{name: language_model}}
optimizer: {{name: adamw, lr: 0.02, weight_decay: 0.1}}
trainer: {{max_epochs: 1, threads: 1, log_every_n_steps: 1}}
''')

    def near(self, a, b): self.assertLess(((a - b).abs().max() / b.abs().max()).item(), 1e-5)

    def test_losses_and_logits(self):
        modules = {'q_proj', 'v_proj', 'down_proj'}
        adapter = reference.new_adapter(self.weights, RANK, modules, seed=2)
        reference.write_adapter(self.dir / 'start', adapter, RANK, ALPHA)
        expected = reference.train(self.weights, adapter, ALPHA / RANK, reference.SIZES, self.tokens, self.STEPS, self.BATCH, self.LENGTH, lr=0.02, weight_decay=0.1)
        self.assertDone(train_app(self.run_config({'from': f'{self.dir}/start'}), f'output.dir={self.dir}/out'))
        losses = [float(row['loss']) for row in rows(self.dir / 'out', 'train')]
        worst = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
        print('largest relative difference of', self.STEPS, 'losses', worst)
        self.assertLess(worst, 1e-5)
        self.assertLess(losses[-1], losses[0] - 0.1, 'the adapter does not learn, so equal losses show nothing')

        run = run_dir(self.dir / 'out')
        text = [3, 7, 1, 30, 2, 9, 4]
        wanted = reference.logits(self.weights, adapter, ALPHA / RANK, reference.SIZES, torch.tensor([text]))[0]
        plain = reference.logits(self.weights, {}, 1, reference.SIZES, torch.tensor([text]))[0]
        self.assertGreater((plain - wanted).abs().max().item(), 0.1 * wanted.abs().max().item())
        text = ','.join(map(str, text))
        logits = lambda *args: npu_tool('generate', *args, '--device', 'cpu', '--tokens', text, '--max-new-tokens', '0', '--logits', self.dir / 'l.npy')
        read = lambda: torch.from_numpy(numpy.load(self.dir / 'l.npy'))
        self.assertDone(logits('--checkpoint', run))
        self.near(read(), wanted)

        # Writes merged weights under the names of Hugging Face, without the adapters' names.
        self.assertDone(npu_tool('weights', '--from', run, '--to', self.dir / 'merged.pt', '--as', 'hf'))
        merged = torch.load(self.dir / 'merged.pt', weights_only=True)
        self.assertEqual(set(merged), set(self.weights))
        self.near(reference.logits(merged, {}, 1, reference.SIZES, torch.tensor([list(map(int, text.split(',')))]))[0], wanted)

        # Writes only the adapter, under PEFT's names, as Python training does.
        self.assertDone(npu_tool('weights', '--from', run, '--to', self.dir / 'adapter', '--as', 'peft'))
        written = tensors(self.dir / 'adapter' / 'adapter_model.safetensors')
        self.assertEqual(set(written), set(adapter))
        for name, value in adapter.items(): self.near(torch.frombuffer(bytearray(written[name]), dtype=torch.float32).view_as(value), value)
        config = json.loads((self.dir / 'adapter' / 'adapter_config.json').read_text())
        self.assertEqual({k: config[k] for k in ('peft_type', 'task_type', 'r', 'lora_alpha', 'bias', 'fan_in_fan_out', 'base_model_name_or_path')},
                         {'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'r': RANK, 'lora_alpha': ALPHA, 'bias': 'none', 'fan_in_fan_out': False, 'base_model_name_or_path': f'{self.dir}/base.bin'})
        self.assertEqual(set(config['target_modules']), modules)
        named = ['--model', 'llama', *(f'model.{k}={v}' for k, v in reference.SIZES.items())]
        self.assertDone(logits(*named, '--weights', self.dir / 'base.bin', f'model.lora.from={self.dir}/adapter'))
        self.near(read(), wanted)
        self.assertDone(npu_tool('weights', '--from', self.dir / 'base.bin', *named, f'model.lora.from={self.dir}/adapter', '--to', self.dir / 'again.safetensors'))
        self.assertDone(logits(*named, '--weights', self.dir / 'again.safetensors'))
        self.near(read(), wanted)

        self.assertDone(npu_tool('export', *named, '--weights', self.dir / 'base.bin', f'model.lora.from={self.dir}/adapter', '--to', self.dir / 'named.pt'))
        self.near(torch.jit.load(self.dir / 'named.pt')(torch.tensor([list(map(int, text.split(',')))]))[0], wanted)

        # Exports compute the same, and contain no adapters.
        for file in ('m.onnx', 'm.pt'):
            with self.subTest(file):
                if file.endswith('.onnx') and not has_onnxruntime(): self.skipTest(NO_ONNXRUNTIME)
                found = json.loads(self.assertDone(npu_tool('export', '--checkpoint', run, '--to', self.dir / file, '--check', '--json')))
                for check in found['checks']: self.assertTrue(check['agrees'] and check['difference'] < 1e-5, check)
                self.assertNotIn(b'lora', (self.dir / file).read_bytes())
        script = torch.jit.load(self.dir / 'm.pt')
        self.near(script(torch.tensor([list(map(int, text.split(',')))]))[0], wanted)


class Runs(ProgramTest):
    def text(self, precision='32-true'): return self.config(SMALL.format(precision=precision))

    def train(self, name, *args, precision='32-true', lora=LORA):
        result = train_app(self.text(precision), *args, lora, f'output.dir={self.dir}/{name}')
        self.assertDone(result)
        return result[2]

    def weights(self, name): return tensors(run_dir(self.dir / name) / 'checkpoints' / 'last' / 'model.safetensors')

    def test_resume_bit_for_bit_in_every_precision(self):
        for precision, *more in (('32-true',), ('16-mixed',), ('bf16-mixed',), ('bf16-true',), ('16-true', 'trainer.accumulate_grad_batches=2'), ('O3', 'average.enabled=false')):
            with self.subTest(precision): self.assertIn('bit for bit', self.assertDone(train_app(self.text(precision), LORA, 'trainer.max_epochs=4', *more, '--verify-resume', '--verify-steps', '6')))

    def test_only_adapters_are_trained_and_averaged(self):
        self.train('first', 'trainer.max_steps=1', 'optimizer.lr=0')
        said = self.train('out', precision='16-mixed')
        self.assertRegex(said, r'lora: 10 layers with adapters of rank 2, [\d,]+ of [\d,]+ parameters are trained')
        self.assertGreater(sum(row['skipped'] == '1' for row in rows(self.dir / 'out', 'train')), 2)
        before, after = self.weights('first'), self.weights('out')
        for name, value in after.items(): self.assertEqual(value != before[name], 'lora_' in name, name)
        for part in ('optimizer', 'ema'):
            names = tensors(run_dir(self.dir / 'out') / 'checkpoints' / 'last' / f'{part}.safetensors')
            self.assertTrue(names and all('lora_' in name for name in names), part)
        said = json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run_dir(self.dir / 'out'), '--json')))
        self.assertAlmostEqual(said['loss'], float(rows(self.dir / 'out', 'val')[-1]['loss']), delta=1e-6)

    def test_strategies_and_recomputation_give_the_bits_of_one_process(self):
        same = ('deterministic=true', 'rng=portable')
        self.train('one', *same, 'trainer.accumulate_grad_batches=2', 'data.batch_size=4')
        for strategy in ('ddp', 'zero1', 'zero2'):
            self.train(strategy, *same, 'data.batch_size=4', f'trainer.strategy={strategy}', '--nproc', '2')
            self.assertEqual(contents(self.dir / strategy)['model.safetensors'], contents(self.dir / 'one')['model.safetensors'], strategy)
            self.assertEqual(contents(self.dir / strategy)['ema.safetensors'], contents(self.dir / 'one')['ema.safetensors'], strategy)
        self.train('recomputed', *same, 'trainer.accumulate_grad_batches=2', 'data.batch_size=4', 'trainer.gradient_checkpointing=blocks')
        self.assertEqual(contents(self.dir / 'recomputed')['model.safetensors'], contents(self.dir / 'one')['model.safetensors'])

    @needs_sim_npu
    def test_sim_npu_trains_as_the_cpu_does_and_dumps_agree(self): assert_trained_alike(self)

    @needs_sim_npu
    def test_memory_and_summary_count_what_is_trained(self):
        sizes = ('model={name: llama_tiny, context: 64, dim: 128, heads: 4, layers: 3}', 'data.context=64', 'average.enabled=false')
        lora = 'model.lora={rank: 4, targets: [q_proj, v_proj]}'
        found = json.loads(self.assertDone(npu_tool('summary', self.text(), *sizes, lora, '--json')))
        self.assertEqual(found['trainable_parameters'], 3 * 4 * (128 + 128 + 128 + 64))
        plain = json.loads(self.assertDone(npu_tool('summary', self.text(), *sizes, '--json')))
        self.assertEqual(found['parameters'], plain['parameters'] + found['trainable_parameters'])
        checked = json.loads(self.assertDone(npu_tool('memory', self.text(), *sizes, lora, 'device=sim_npu', '--check', '4,24', '--json', cwd=self.dir)))
        for row in checked: self.assertLess(abs(row['error']), 0.001)  # measured: 2e-6

    def test_images_with_a_new_head(self):
        small = ('model={name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8, qkv: split}', 'data={name: generated, train_size: 64, val_size: 16, batch_size: 8, num_workers: 0}', 'task={name: classifier}', 'trainer.max_steps=4')
        self.train('vit', *small, lora='model.lora={rank: 2, targets: ["*attention.*"], also_train: [heads]}')
        self.assertDone(npu_tool('weights', '--from', run_dir(self.dir / 'vit'), '--to', self.dir / 'adapter', '--as', 'peft'))
        names = set(tensors(self.dir / 'adapter' / 'adapter_model.safetensors'))
        self.assertEqual(names, {f'base_model.model.vit.layers.0.attention.{p}_proj.lora_{h}.weight' for p in 'qkvo' for h in 'AB'} | {f'base_model.model.classifier.{k}' for k in ('weight', 'bias')})
        config = json.loads((self.dir / 'adapter' / 'adapter_config.json').read_text())
        self.assertEqual((config['target_modules'], config['modules_to_save']), (['k_proj', 'o_proj', 'q_proj', 'v_proj'], ['classifier']))
        self.train('again', *small, lora=f'model.lora={{from: {self.dir}/adapter}}')
        self.assertFails(npu_tool('weights', '--from', run_dir(self.dir / 'vit'), '--to', self.dir / 'x', '--as', 'training'), 2, 'only adapters were trained')

    def test_frozen_parameters(self):
        self.train('start', 'trainer.max_steps=1', 'optimizer.lr=0', lora='model.freeze=[token_embedding, blocks.0]')
        self.train('out', lora='model.freeze=[token_embedding, blocks.0]')
        before, after = self.weights('start'), self.weights('out')
        for name, value in after.items(): self.assertEqual(value == before[name], name.startswith(('token_embedding', 'blocks.0')), name)
        self.assertIn('bit for bit', self.assertDone(train_app(self.text('16-mixed'), 'model.freeze=[blocks.0, head]', '--verify-resume')))

    def test_mistakes(self):
        config = self.text()
        fails = lambda code, *words: self.assertFails(train_app(config, *words[0], f'output.dir={self.dir}/x'), code, *words[1:])
        fails(2, ['model.lora={targets: [atention.*]}'], "'atention.*' matches no linear layer of the model; it has blocks.0.attention.q_proj")
        fails(2, ['model.lora={rank: 2}'], 'targets is empty')
        fails(2, ['model.lora={targets: [attention], lora_alpha: 3}'], 'alpha')
        fails(2, ['model.freeze=[tail]'], "'tail' matches no parameter")
        fails(3, [f'model.lora={{from: {self.dir}/none}}'], 'not a folder with an adapter_config.json')
        self.train('tuned', 'trainer.max_steps=1')
        file = run_dir(self.dir / 'tuned') / 'checkpoints' / 'last' / 'model.safetensors'
        sizes = ('model.context=32', 'model.dim=32', 'model.hidden=48', 'model.heads=4', 'model.kv_heads=2')
        self.assertFails(npu_tool('generate', '--model', 'llama_tiny', *sizes, '--weights', file, '--prompt', 'a'), 6, 'has adapters (lora_A, lora_B)', 'name the folder of the checkpoint')
        self.assertDone(npu_tool('generate', '--model', 'llama_tiny', *sizes, '--weights', run_dir(self.dir / 'tuned'), '--prompt', 'a', '--max-new-tokens', '2'))
        self.train('out', 'trainer.max_steps=1', lora='model.freeze=[head]')
        self.assertFails(train_app(self.text('16-mixed'), f'output.dir={self.dir}/out', '--resume', 'auto'), 6, 'hint: other parameters are trained now', 'model.freeze')
        self.assertFails(npu_tool('weights', '--from', run_dir(self.dir / 'out'), '--to', self.dir / 'a', '--as', 'peft'), 2, 'has no adapters')
        self.assertFalse((self.dir / 'a').exists())


if __name__ == '__main__': main()
