"""CLIP with the programs: against PyTorch with equal weights, on one rank and several, and every part of a run."""
import json
import math
import random
import struct
import unittest

from model_runs import ModelRuns, rows
from images import png_of
from programs import SOURCE, ProgramTest, checksums, main, needs_onnxruntime, npu_tool, run_dir, safetensors_of, train_app

try:
    import torch
    import python_encoders as python
    torch.set_num_threads(1)
except ImportError: torch = None

FEATURES, LOSSES = 1e-5, 1e-4  # largest differences: of features, whose length is 1; of each loss, relative to the loss
SIZES = {'image_size': 12, 'patch_size': 4, 'vision_layers': 2, 'vision_heads': 2, 'vision_dim': 16, 'vocab_size': 61, 'context': 14, 'text_layers': 3, 'text_heads': 4,
         'text_dim': 24, 'projection': 10}
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # normalisation of the data set

def album(folder, count, side, seed=4):
    """Images of one of 25 colours with a little noise, and texts that name the colour: [(pixels, tokens)]."""
    folder.mkdir(parents=True)
    source, out, lines = random.Random(seed), [], []
    for i in range(count):
        colour = i % 25
        shade = [colour // k % 3 * 100 + 20 for k in (1, 3, 9)]
        pixels = bytes(s + source.randrange(8) for _ in range(side * side) for s in shade)
        tokens = [1 + colour] + [51 + source.randrange(9) for _ in range(source.randrange(0, 8))] + [0]
        (folder / f'{i}.png').write_bytes(png_of(side, pixels))
        lines.append(json.dumps({'image': f'{i}.png', 'tokens': tokens}))
        out.append((pixels, tokens))
    (folder / 'train.jsonl').write_text('\n'.join(lines))
    return out


def tensors(pairs, side):
    images = torch.stack([torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(side, side, 3).permute(2, 0, 1) for pixels, _ in pairs]).float() / 255
    longest = max(len(tokens) for _, tokens in pairs)
    ids = torch.tensor([tokens + [0] * (longest - len(tokens)) for _, tokens in pairs])
    return (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1), ids


@unittest.skipIf(torch is None, 'torch is not installed for this Python')
class AgainstPyTorch(ProgramTest):
    def network(self):
        torch.manual_seed(3)
        net = python.randomise(python.Clip(**SIZES))
        torch.save(net.huggingface(), self.dir / 'weights.bin')
        return net, {'name': 'clip', **SIZES, 'end_token': 0, 'weights': str(self.dir / 'weights.bin')}

    def test_features_of_both_towers_at_odd_lengths(self):
        net, model = self.network()
        keys = [f'model.{key}={value}' for key, value in model.items() if key not in ('name', 'weights')]
        export = lambda *more: self.assertDone(npu_tool('export', '--model', 'clip', '--weights', model['weights'], *keys, *more, '--to', self.dir / 'm.pt', '--check'))
        images = torch.randn(3, 3, 12, 12)
        texts = [torch.tensor([[5, 9, 0], [7, 0, 3], [0, 1, 2]]), torch.tensor([[1 + (7 * i + k) % 59 for k in range(13)] + [0] for i in range(3)])]
        for ids in texts:
            with torch.no_grad(): expected = net.eval()(images, ids)
            for more, given in ((('--dynamic', 'batch,tokens'), (images, ids)), (('model.tower=image', '--dynamic', 'batch'), (images,)), (('model.tower=text', '--dynamic', 'batch,tokens'), (ids,))):
                export(*more)
                with torch.no_grad(): found = torch.jit.load(str(self.dir / 'm.pt'))(*given)
                found = found[:2] if len(given) == 2 else (found,)
                for a, b in zip(found, expected if len(given) == 2 else (expected[given[0] is ids],), strict=True): self.assertLess((a - b).abs().max().item(), FEATURES, more)

    def test_weights_there_and_back(self):
        net, model = self.network()
        self.assertDone(npu_tool('weights', '--from', model['weights'], '--to', self.dir / 'ours.safetensors', '--as', 'torchvision'))
        self.assertDone(npu_tool('weights', '--from', self.dir / 'ours.safetensors', '--to', self.dir / 'back.pt', '--as', 'hf'))
        back, state = torch.load(self.dir / 'back.pt', weights_only=True), net.huggingface()
        self.assertEqual(set(back), set(state))
        for name, value in back.items(): self.assertTrue(torch.equal(value, state[name]), name)

    def test_losses_on_one_rank_and_on_two(self):
        """Two ranks must have the losses of PyTorch with the pairs of both ranks in one batch."""
        steps, batch = 10, 8
        net, model = self.network()
        pairs = album(self.dir / 'album', steps * batch, 12)
        expected = python.train(net.train(), [lambda net, b=pairs[i:i + batch]: net.loss(*tensors(b, 12)) for i in range(0, len(pairs), batch)], lr=0.003, weight_decay=0.1, clip=1.0)
        config = self.config(f'''
device: cpu
precision: 32-true
model: {json.dumps(model)}
data: {{name: image_text, root: {self.dir}/album, context: 14, image_size: 12, batch_size: {batch}, shuffle: false, num_workers: 0, train_transforms: [center_crop, normalize]}}
task: {{name: contrastive}}
optimizer: {{name: adamw, lr: 0.003, weight_decay: 0.1}}
trainer: {{max_epochs: 1, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}}
''')
        for ranks, more in ((1, ()), (2, ('data.batch_size=4', '--nproc', '2'))):
            self.assertDone(train_app(config, f'output.dir={self.dir}/out{ranks}', *more))
            losses = [float(row['loss']) for row in rows(self.dir / f'out{ranks}', 'train')]
            self.assertEqual(len(losses), steps)
            worst = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
            print(ranks, 'ranks: largest relative difference of', steps, 'losses', worst)
            self.assertLess(worst, LOSSES, ranks)
            self.assertLess(losses[-1], losses[0] - 0.1, 'the network does not learn, so equal losses show nothing')


KEYS = [f'model.{key}' for key in ('image_size=16', 'patch_size=8', 'vision_dim=32', 'text_dim=32', 'vocab_size=61', 'context=14')]
SMALL = '''
seed: 7
device: cpu
precision: {precision}
model: {{name: clip_tiny, image_size: 16, patch_size: 8, vision_dim: 32, text_dim: 32, vocab_size: 61, context: 14}}
data: {{name: image_text, root: {root}, val_fraction: 0.2, context: 14, image_size: 16, batch_size: 8, num_workers: 0}}
task: {{name: contrastive}}
optimizer: {{name: adamw, lr: 0.003}}
grad_scaler: {{init_scale: 16777216, growth_interval: 5}}
trainer: {{max_epochs: 3, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}}
'''


class Runs(ModelRuns, ProgramTest):
    rounding = 0.025  # up to 0.017 with seven seeds, because logits are products of features times 14; 0.04 if lr is a quarter larger

    def setUp(self):
        super().setUp()
        album(self.dir / 'album', 100, 16)

    def text(self, precision='32-true'): return self.config(SMALL.format(precision=precision, root=self.dir / 'album'))

    def test_it_learns_which_text_belongs_to_which_image(self):
        self.train('out', 'trainer.max_epochs=8', 'checkpoint.monitor=val/text_recall1')
        first, *_, last = rows(self.dir / 'out', 'val')
        self.assertLess(float(last['loss']), float(first['loss']))
        for name in ('text_recall1', 'text_recall5', 'image_recall1', 'image_recall5'): self.assertLessEqual(float(last[name]), 100)
        self.assertGreater(float(last['text_recall5']), 80)
        found = json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run_dir(self.dir / 'out'), '--json')))
        self.assertIn('image_recall1', json.dumps(found))

    def test_recalls_of_a_validation_are_over_all_of_its_pairs(self):
        """Expected are the recalls in PyTorch from the exported features of both towers. Several ranks and other batches must give the
        same."""
        if torch is None: self.skipTest('torch is not installed for this Python')
        self.train('out', 'trainer.max_epochs=6', 'average.enabled=false')
        self.assertDone(npu_tool('export', '--checkpoint', run_dir(self.dir / 'out'), '--dynamic', 'batch,tokens', '--to', self.dir / 'm.pt'))
        pairs = album(self.dir / 'again', 100, 16)[80:]
        with torch.no_grad(): images, texts, _ = torch.jit.load(str(self.dir / 'm.pt'))(*tensors(pairs, 16))
        products, own = images @ texts.T, torch.arange(20).unsqueeze(1)
        expected = {f'{name}_recall{k}': 100 * (logits.argsort(1, descending=True)[:, :k] == own).any(1).float().mean().item() for name, logits in (('text', products), ('image', products.T)) for k in (1, 5)}
        self.assertTrue(30 < expected['text_recall5'] < 100, expected)  # the recall within batches of 8 would differ
        for more in ((), ('data.val_batch_size=3',), ('data.val_batch_size=1',)):
            found = json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run_dir(self.dir / 'out'), '--json', *more)))
            for name, value in expected.items(): self.assertAlmostEqual(found[name], value, delta=1e-3, msg=(name, more))
        self.train('ranks', 'trainer.max_epochs=2', 'data.batch_size=4', 'data.val_batch_size=3', '--nproc', '3')
        found = json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run_dir(self.dir / 'ranks') / 'checkpoints/last', '--json')))
        for name in expected: self.assertAlmostEqual(float(rows(self.dir / 'ranks', 'val')[-1][name]), found[name], delta=1e-3, msg=name)

    def test_checkpointed_blocks_change_nothing(self):
        self.train('plain', 'trainer.max_steps=6')
        for plan in ('blocks', 'every:2', 'budget:400KiB'):
            self.train(plan, 'trainer.max_steps=6', f'trainer.gradient_checkpointing={plan}')
            self.assertEqual(*(checksums(self.dir / out)['model.safetensors'] for out in ('plain', plan)))
        self.train('two', 'trainer.max_steps=6', 'trainer.gradient_checkpointing=blocks', 'data.batch_size=4', '--nproc', '2')

    def test_ranks_with_unequal_numbers_of_pairs_and_batches_equal_one_process(self):
        """In micro-batches of 4, the last round of 21 pairs has a batch of one pair, and the last round of 20 pairs has a rank without a
        batch."""
        for fraction in ('0.79', '0.8'):
            same = ('data.shuffle=false', 'data.train_transforms=[center_crop, normalize]', 'trainer.max_epochs=2', f'data.val_fraction={fraction}')
            out = {name: f'{name}_{fraction}' for name in ('one', 'two', 'again')}
            self.train(out['one'], *same, 'data.batch_size=8')
            for name in ('two', 'again'): self.train(out[name], *same, 'data.batch_size=4', 'data.val_batch_size=8', '--nproc', '2')
            self.assertEqual(checksums(self.dir / out['two'])['model.safetensors'], checksums(self.dir / out['again'])['model.safetensors'])
            for phase in ('train', 'val'):
                one, two = rows(self.dir / out['one'], phase), rows(self.dir / out['two'], phase)
                self.assertGreater(len(one), 1)
                for a, b in zip(one, two, strict=True):
                    self.assertAlmostEqual(float(a['loss']), float(b['loss']), delta=1e-4 * abs(float(a['loss'])) + 1e-6, msg=(fraction, phase))
                    self.assertAlmostEqual(float(a['text_recall5']), float(b['text_recall5']), delta=1e-3, msg=(fraction, phase))

    @needs_onnxruntime
    def test_export_of_both_towers(self):
        self.train('out', 'trainer.max_steps=2')
        image, text = {'name': 'input', 'dtype': 'float32', 'shape': ['batch', 3, 16, 16]}, {'name': 'tokens', 'dtype': 'int64', 'shape': ['batch', 'tokens']}
        cases = ((('--dynamic', 'batch,tokens'), [image, text], ['image_features', 'text_features', 'scale']), (('model.tower=image', '--dynamic', 'batch'), [image], ['image_features']),
                 (('model.tower=text', '--dynamic', 'batch,tokens'), [text | {'name': 'input'}], ['text_features']))
        for more, inputs, outputs in cases:
            with self.subTest(more):
                run = run_dir(self.dir / 'out')
                found = json.loads(self.assertDone(npu_tool('export', '--checkpoint', run, *more, '--to', self.dir / 'm.onnx', '--check', '--json')))
                if len(inputs) == 1:  # the same from the weights, with the model's keys
                    self.assertDone(npu_tool('export', '--model', 'clip_tiny', '--weights', run, *KEYS, *more, '--to', self.dir / 'again.onnx', '--check'))
                self.assertEqual(found['inputs'], inputs)
                self.assertEqual([o['name'] for o in found['outputs']], outputs)
                self.assertEqual(found['outputs'][0]['shape'], ['batch', 32])
                for check in found['checks']: self.assertTrue(check['agrees'] and check['difference'] < 1e-5, check)

    def test_the_preset(self):
        album(self.dir / 'data/captions', 80, 32)
        (self.dir / 'data/captions/val.jsonl').write_text('\n'.join((self.dir / 'data/captions/train.jsonl').read_text().splitlines()[:8]))
        data = 'data={name: image_text, root: data/captions, val: val.jsonl, image_size: 32, context: 64, long_documents: truncate, batch_size: 64}'
        result = train_app(SOURCE / 'configs/clip_tiny.yaml', data, 'trainer.max_epochs=1', f'output.dir={self.dir}/out', cwd=self.dir)
        self.assertDone(result)
        self.assertIn('data: 80 + 8 images', result[2])

    def test_the_preset_as_it_is(self):
        result = train_app(SOURCE / 'configs/clip_tiny.yaml', 'trainer.max_steps=3', f'output.dir={self.dir}/out', cwd=self.dir)
        self.assertDone(result)
        self.assertIn('data: 2,048 + 256 images', result[2])

    def test_the_factor_keeps_its_limit_in_every_precision_and_in_shards(self):
        """After the first step the factor is the limit, which is below its initial value of 14. Without a limit it moves by one step."""
        scale = lambda name: math.exp(struct.unpack('<f', safetensors_of(run_dir(self.dir / name) / 'checkpoints/last/model.safetensors')['logit_scale'][2])[0])
        for name, *args in (('plain', ), ('masters', 'precision=bf16-true'), ('shards', 'trainer.strategy=zero1', '--nproc', '2')):
            self.train(name, 'trainer.max_steps=1', 'model.max_scale=2', *args)
            self.assertAlmostEqual(scale(name), 2, delta=1e-5, msg=name)
        self.train('free', 'trainer.max_steps=2', 'model.max_scale=0')
        self.assertAlmostEqual(scale('free'), 1 / 0.07, delta=0.2)

    def test_mistakes(self):
        fails = lambda code, *words, args=(): self.assertFails(train_app(self.text(), f'output.dir={self.dir}/x', *args), code, *words)
        fails(2, 'image_features, text_features and scale', args=('model.tower=image',))
        fails(2, "there is no field 'target'", args=('task={name: classifier}',))
        fails(3, 'train.jsonl, line', 'allowed: at most 4', args=('data.context=4',))
        fails(3, 'nowhere', args=('data.train=nowhere.jsonl',))
        self.assertFails(npu_tool('export', '--model', 'clip_tiny', 'model.tower=left', '--to', self.dir / 'm.onnx'), 2, 'both, image, text')


if __name__ == '__main__': main()
