"""InternVL with the programs: against PyTorch with equal weights, on one rank and several, and every part of a run."""
import json
import random
import unittest

from model_runs import ModelRuns, rows
from images import png_of
from programs import SOURCE, ProgramTest, checksums, main, needs_onnxruntime, needs_sim_npu, npu_tool, run_dir, train_app

try:
    import torch
    import python_encoders
    import python_internvl as python
    torch.set_num_threads(1)
except ImportError: torch = None

LOGITS, LOSSES = 1e-5, 1e-4  # largest differences: of logits, relative to the largest logit; of each loss, relative to the loss
IMAGE, PLACES = 60, 4  # the image token, and the number of image tokens per image
SIZES = {'image_size': 16, 'patch_size': 4, 'vision_layers': 2, 'vision_heads': 2, 'vision_dim': 12, 'image_token': IMAGE,
         'vocab_size': 61, 'context': 24, 'layers': 2, 'heads': 4, 'kv_heads': 2, 'dim': 24, 'hidden': 40, 'rope_theta': 300, 'norm_eps': 1e-3}
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # normalisation of the data set

def album(folder, count, side=16, seed=4):
    """Images of one of 9 colours, each with a question of 1 to 5 tokens and an answer that names the colour: [(pixels, question, answer)]."""
    folder.mkdir(parents=True)
    source, out, lines = random.Random(seed), [], []
    for i in range(count):
        colour = i % 9
        shade = [colour // k % 3 * 100 + 20 for k in (1, 3)] + [90]
        pixels = bytes(s + source.randrange(8) for _ in range(side * side) for s in shade)
        question, answer = [30 + source.randrange(9) for _ in range(source.randrange(1, 6))], [1 + colour] + [20 + colour] * (colour % 3)
        (folder / f'{i}.png').write_bytes(png_of(side, pixels))
        lines.append(json.dumps({'image': f'{i}.png', 'question': question, 'answer': answer}))
        out.append((pixels, question, answer))
    (folder / 'train.jsonl').write_text('\n'.join(lines))
    return out


def tensors(records, side=16):
    """Images, tokens and targets, as the documentation describes the samples."""
    images = torch.stack([torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(side, side, 3).permute(2, 0, 1) for pixels, *_ in records]).float() / 255
    prompts, texts = zip(*(([IMAGE] * PLACES + question + [10], answer + [0]) for _, question, answer in records))
    longest = max(len(p) + len(t) for p, t in zip(prompts, texts)) - 1
    fill = lambda ids, value: ids + [value] * (longest - len(ids))
    ids = torch.tensor([fill((p + t)[:-1], 0) for p, t in zip(prompts, texts)])
    targets = torch.tensor([fill([python.IGNORED] * (len(p) - 1) + t, python.IGNORED) for p, t in zip(prompts, texts)])
    return (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1), ids, targets


def data_of(folder, more=''):
    return f'{{name: image_questions, root: {folder}, context: 24, image_token: {IMAGE}, image_tokens: {PLACES}, image_size: 16, num_workers: 0{more}}}'


@unittest.skipIf(torch is None, 'torch is not installed for this Python')
class AgainstPyTorch(ProgramTest):
    def network(self):
        torch.manual_seed(3)
        net = python_encoders.randomise(python.InternVl(**SIZES))
        torch.save(net.ours(), self.dir / 'weights.pt')
        return net, {'name': 'internvl', **SIZES, 'weights': str(self.dir / 'weights.pt')}

    def test_logits_at_odd_lengths(self):
        net, model = self.network()
        keys = [f'model.{key}={value}' for key, value in model.items() if key not in ('name', 'weights')]
        self.assertDone(npu_tool('export', '--model', 'internvl', '--weights', model['weights'], *keys, '--dynamic', 'batch,tokens', '--to', self.dir / 'm.pt', '--check'))
        ours = torch.jit.load(str(self.dir / 'm.pt'))
        for n, before, after in ((1, 0, 1), (3, 2, 7), (2, 5, 14)):  # the image tokens are in the middle, and not contiguous
            ids = torch.randint(0, IMAGE, (n, before + PLACES + 1 + after))
            ids[:, [before, before + 1, before + 3, before + 4]] = IMAGE
            images = torch.randn(n, 3, 16, 16)
            with torch.no_grad(): a, b = ours(images, ids), net(images, ids)
            self.assertLess(((a - b).abs().max() / b.abs().max()).item(), LOGITS, (n, before, after))
            other = images.roll(1, -1)
            with torch.no_grad(): self.assertGreater((ours(other, ids) - a).abs().max().item(), 1e-3)

    def test_ten_losses_on_one_rank_and_on_two(self):
        steps, batch = 10, 8
        net, model = self.network()
        records = album(self.dir / 'album', steps * batch)
        expected = python_encoders.train(net.train(), [lambda net, b=records[i:i + batch]: net.loss(*tensors(b)) for i in range(0, len(records), batch)], lr=0.003, weight_decay=0.1, clip=1.0)
        config = self.config(f'''
device: cpu
precision: 32-true
model: {json.dumps(model)}
data: {data_of(self.dir / 'album', f', batch_size: {batch}, shuffle: false, train_transforms: [center_crop, normalize]')}
task: {{name: language_model}}
optimizer: {{name: adamw, lr: 0.003, weight_decay: 0.1}}
trainer: {{max_epochs: 1, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}}
''')
        for ranks, more in ((1, ()), (2, ('data.batch_size=4', '--nproc', '2')), (3, ('trainer.gradient_checkpointing=blocks',))):
            self.assertDone(train_app(config, f'output.dir={self.dir}/out{ranks}', *more))
            losses = [float(row['loss']) for row in rows(self.dir / f'out{ranks}', 'train')]
            self.assertEqual(len(losses), steps)
            worst = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
            print(more, 'largest relative difference of', steps, 'losses', worst)
            self.assertLess(worst, LOSSES, more)
            self.assertLess(losses[-1], losses[0] - 0.1, 'the network does not learn, so equal losses show nothing')
        self.assertEqual(*(checksums(self.dir / out)['model.safetensors'] for out in ('out1', 'out3')))  # recomputing blocks changes no bit


SMALL = '''
seed: 7
device: cpu
precision: {precision}
model: {{name: internvl_tiny, image_size: 16, vision_dim: 32, vocab_size: 61, context: 24, dim: 32, hidden: 48, image_token: 60}}
data: {data}
task: {{name: language_model}}
optimizer: {{name: adamw, lr: 0.003}}
grad_scaler: {{init_scale: 16777216, growth_interval: 5}}
trainer: {{max_epochs: 4, threads: 1, gradient_clip_val: 1.0, log_every_n_steps: 1}}
'''


class Runs(ModelRuns, ProgramTest):
    rounding = 0.001  # up to 0.0002 with seven seeds; 0.007 if lr is a tenth larger

    def setUp(self):
        super().setUp()
        album(self.dir / 'album', 100)

    def text(self, precision='32-true'): return self.config(SMALL.format(precision=precision, data=data_of(self.dir / 'album', ', val_fraction: 0.2, batch_size: 8')))

    def test_it_answers_what_is_in_the_image(self):
        self.train('out', 'trainer.max_epochs=10')
        self.assertGreater(float(rows(self.dir / 'out', 'val')[-1]['acc']), 95)
        run = run_dir(self.dir / 'out')
        prompt = ','.join(map(str, [IMAGE] * PLACES + [31, 32, 10]))
        def answer(image, *more): return json.loads(self.assertDone(npu_tool('generate', '--checkpoint', run, '--image', self.dir / f'album/{image}.png', '--tokens', prompt, '--json', *more)))['tokens']
        for i in (0, 4, 8): self.assertEqual(answer(i, '--temperature', '0', '--max-new-tokens', '1'), [1 + i])
        self.assertEqual(answer(3, '--seed', '2', '--max-new-tokens', '6'), answer(3, '--seed', '2', '--max-new-tokens', '6', '--no-cache'))
        self.assertFails(npu_tool('generate', '--checkpoint', run, '--tokens', prompt), 2, '--image')
        self.assertIn('acc', json.dumps(json.loads(self.assertDone(npu_tool('eval', '--checkpoint', run, '--json')))))
        self.assertFails(npu_tool('predict', '--checkpoint', run, self.dir / 'album/3.png'), 2, 'internvl')

    def test_ranks_equal_accumulation_in_one_process(self):
        """Answers have unequal numbers of tokens, which are the weights."""
        same = ('data.batch_size=4', 'trainer.max_epochs=1')
        self.train('one', *same, 'trainer.accumulate_grad_batches=2')
        self.train('two', *same, '--nproc', '2')
        self.assertEqual(*(checksums(self.dir / out)['model.safetensors'] for out in ('one', 'two')))

    @needs_sim_npu
    def test_memory_is_predicted(self):
        texts = self.dir / 'album/train.jsonl'  # texts of equal length, because a batch is as long as its longest text
        lines = [json.loads(line) for line in texts.read_text().splitlines()]
        for line in lines: line['question'] += [31] * (8 - len(line['question']) - len(line['answer']))
        texts.write_text('\n'.join(map(json.dumps, lines)))
        found = json.loads(self.assertDone(npu_tool('memory', self.text(), 'device=sim_npu', '--check', '4,9', '--json')))
        self.assertEqual([row['batch_size'] for row in found], [4, 9])
        for row in found: self.assertLess(abs(row['error']), 0.001)  # measured: 1e-5
        print('errors of the predicted memory', [row['error'] for row in found])

    @needs_onnxruntime
    def test_export(self):
        self.train('out', 'trainer.max_steps=2')
        found = json.loads(self.assertDone(npu_tool('export', '--checkpoint', run_dir(self.dir / 'out'), '--dynamic', 'batch,tokens', '--to', self.dir / 'm.onnx', '--check', '--json')))
        self.assertEqual(found['inputs'], [{'name': 'input', 'dtype': 'float32', 'shape': ['batch', 3, 16, 16]}, {'name': 'tokens', 'dtype': 'int64', 'shape': ['batch', 'tokens']}])
        self.assertEqual(found['outputs'][0]['shape'], ['batch', 'tokens', 61])
        for check in found['checks']: self.assertTrue(check['agrees'] and check['difference'] < 1e-5, check)

    def test_the_preset(self):
        result = train_app(SOURCE / 'configs/internvl_tiny.yaml', 'trainer.max_epochs=1', 'trainer.threads=1', 'trainer.log_every_n_steps=1', 'data.train_size=512', f'output.dir={self.dir}/out', cwd=self.dir)
        self.assertDone(result)
        self.assertIn('data: 512 + 256 images', result[2])
        first, last = (float(row['loss']) for row in (rows(self.dir / 'out', 'train')[0], rows(self.dir / 'out', 'val')[-1]))
        self.assertLess(last, first - 1)

    def test_mistakes(self):
        fails = lambda code, *words, args=(): self.assertFails(train_app(self.text(), f'output.dir={self.dir}/x', *args), code, *words)
        fails(2, 'the model makes 4 vectors', args=('data.image_tokens=5',))
        fails(2, 'data.image_token', 'they must be equal', args=('data.image_token=59',))
        fails(2, 'data.context', 'model.context', 'hint: data.context=24', args=('data.context=25',))
        fails(3, 'train.jsonl, line', 'before the answer; allowed: at most 8', args=('data.context=8',))
        fails(3, 'line 1', '(data.vocab_size - 1)', args=('data.vocab_size=60', 'data.image_token=60'))
        (self.dir / 'album/train.jsonl').write_text('{"image": "0.png", "question": [1], "answer": [60]}')
        fails(3, 'line 1: the text has the token 60, which is that of images')
        (self.dir / 'album/train.jsonl').write_text('{"image": "0.png", "question": [1], "text": "x"}')
        fails(3, 'line 1', 'answer')
        self.assertFails(npu_tool('export', '--model', 'internvl_tiny', 'model.pixel_shuffle=3', '--to', self.dir / 'm.onnx'), 2, 'not a multiple of patch_size * pixel_shuffle = 12')


if __name__ == '__main__': main()
