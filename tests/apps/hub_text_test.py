"""Folders of Hugging Face as they are: npu_tool generate gives the tokens and texts of transformers' generate, for prompts, chats, stop texts, penalties and
ends, and train_app the loss of its texts and chats."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import sentencepiece_model
from model_runs import rows
from peers import MODELS_PYTHON, Peer
from programs import BIN, FULL, ProgramTest, main, npu_tool, run_dir, train_app

PEER = Peer(MODELS_PYTHON, any_torchvision='import any_torchvision', transformers='import transformers', tokenizers='import tokenizers')
DRIVER = pathlib.Path(__file__).with_name('python_generate.py')
FAMILIES = ('gpt2', 'llama', 'qwen2')


@unittest.skipUnless(PEER.has('transformers', 'tokenizers'), 'transformers is not installed: scripts/setup --dev')
class HubText(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix='npu_train_')
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        code, out, err = PEER.run(DRIVER, cls.folder)
        assert code == 0, err
        of_families = json.loads(out.splitlines()[-1])
        cls.expected = {family: found['examples'] for family, found in of_families.items()}
        cls.losses = {family: found['losses'] for family, found in of_families.items()}
        cls.masks = {family: found['masks'] for family, found in of_families.items()}

    def generate(self, family, *words, **options):
        return npu_tool('generate', '--model', self.folder / family, '--device', 'cpu', '--temperature', '0', '--max-new-tokens', '24', *words, **options)

    def found(self, family, *words): return json.loads(self.assertDone(self.generate(family, *words, '--json')))

    def test_tokens_and_texts_of_transformers(self):
        self.assertEqual(set(self.expected), set(FAMILIES))
        for family, examples in self.expected.items():
            self.assertGreater(len(examples), 6)
            for each in examples:
                words = each['words']
                with self.subTest(family, words=words):
                    if words[0] == '--messages':
                        (self.dir / 'chat.json').write_text(json.dumps(words[1]))
                        words = ['--messages', self.dir / 'chat.json']
                    ours = self.found(f'{family}_endless', *words)
                    self.assertEqual(ours['tokens'], each['tokens'])
                    self.assertEqual(ours['text'], each['text'])

    def test_a_text_ends_with_the_token_of_generation_config(self):
        for family in FAMILIES:
            tokens = self.expected[family][0]['tokens']
            end = tokens[8]
            self.assertEqual(self.found(family, *self.expected[family][0]['words'])['tokens'], tokens[:tokens.index(end) + 1])

    def test_every_prompt_of_a_file(self):
        examples = [each for each in self.expected['llama'] if each['words'][0] == '--prompt' and len(each['words']) == 2 and '\n' not in each['words'][1]]
        (self.dir / 'prompts.txt').write_bytes(''.join(each['words'][1] + '\r\n' for each in examples).encode('utf-8-sig'))  # as on Windows
        ours = self.found('llama_endless', '--prompts', self.dir / 'prompts.txt')
        self.assertEqual([each['tokens'] for each in ours], [each['tokens'] for each in examples])
        self.assertGreater(len(ours), 1)

    def test_prompts_of_several_lengths_in_a_batch(self):
        """Each prompt must get the tokens that it gets alone, which are those of transformers: in full batches, in the last batch, and if
        the rows end at different tokens."""
        for family in FAMILIES:
            examples = [each for each in self.expected[family] if each['words'][0] == '--prompt' and len(each['words']) == 2 and '\n' not in each['words'][1]]
            examples = [examples[i % len(examples)] for i in (0, 1, 0, 1, 1)]
            self.assertEqual(len({each['words'][1] for each in examples}), 2)
            (self.dir / 'prompts.txt').write_text(''.join(each['words'][1] + '\n' for each in examples))
            prompts = '--prompts', self.dir / 'prompts.txt'
            others = (('--batch', '100'), ('--batch', '2', '--no-cache')) if family == 'llama' else ()
            for words in (('--batch', '3'), *others[:2 if FULL else 1]):
                with self.subTest(family, words=words):
                    ours = self.found(f'{family}_endless', *prompts, *words)
                    self.assertEqual([each['tokens'] for each in ours], [each['tokens'] for each in examples])
                    self.assertEqual([each['text'] for each in ours], [each['text'] for each in examples])
            if not FULL and family != 'llama': continue
            with self.subTest(family, ends=True):
                ends = self.expected[family][0]['tokens'][8], 0  # generation_config.json
                expected = [each['tokens'][:next((i + 1 for i, token in enumerate(each['tokens']) if token in ends), 24)] for each in examples]
                self.assertEqual([each['tokens'] for each in self.found(family, *prompts, '--batch', '4')], expected)
                self.assertLess(len(expected[0]), 24)
        said = self.assertDone(self.generate('llama_endless', *prompts, '--batch', '2'))
        self.assertEqual(said.count('24 tokens, '), 5)
        for each in examples: self.assertIn(each['words'][1], said)

    def test_the_text_appears_as_it_is_generated(self):
        """Complete characters only; nothing of a stop text is shown."""
        for each in self.expected['qwen2'][:3]:
            words = ['generate', '--model', self.folder / 'qwen2_endless', '--device', 'cpu', '--temperature', '0', '--max-new-tokens', '24', *each['words']]
            process = subprocess.run([BIN / 'npu_tool', *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            said = process.stdout.decode()
            self.assertEqual(process.returncode, 0, process.stderr)
            shown, end = each['words'][1] + each['text'], f"\n{len(each['tokens'])} tokens, "
            visible = lambda text: ''.join(c if c in '\n\t' or ord(c) >= 32 else f'\\x{ord(c):02x}' for c in text)
            self.assertTrue(said.startswith(visible(shown) + end), (said, shown))

    def test_draws_depend_on_the_seed(self):
        draw = lambda *words: npu_tool('generate', '--model', self.folder / 'gpt2_endless', '--device', 'cpu', '--prompt', 'a', '--max-new-tokens', '12', '--json', *words)
        tokens = lambda *words: json.loads(self.assertDone(draw(*words)))['tokens']
        self.assertEqual(tokens('--seed', '3'), tokens('--seed', '3'))
        self.assertNotEqual(tokens('--seed', '3'), tokens('--seed', '4'))
        self.assertEqual(tokens('--top-k', '1', '--seed', '5'), tokens('--temperature', '0'))

    def test_a_folder_with_a_model_of_sentencepiece(self):
        folder = self.dir / 'llama'
        folder.mkdir()
        for path in (self.folder / 'llama_endless').iterdir():
            if not path.name.startswith(('tokenizer', 'special_tokens_map', 'chat_template')): (folder / path.name).symlink_to(path)
        (folder / 'tokenizer.model').write_bytes(sentencepiece_model.small('abcdefghijklmnopqrstuvwxyz'))
        (folder / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'LlamaTokenizer'}))
        generate = lambda *words: json.loads(self.assertDone(npu_tool('generate', '--model', folder, '--device', 'cpu', '--temperature', '0', '--max-new-tokens', '24', *words, '--json')))
        ids = json.loads(self.assertDone(npu_tool('tokenize', '--tokenizer', folder, 'a dog', '--json')))['ids']
        self.assertEqual(ids[0], 1)
        said = generate('--prompt', 'a dog')
        self.assertEqual(said['tokens'], generate('--tokens', ','.join(map(str, ids)))['tokens'])
        decoded = npu_tool('tokenize', '--tokenizer', folder, '--decode', ','.join(map(str, said['tokens'])), '--no-special-tokens', '--json')
        self.assertEqual(said['text'], json.loads(self.assertDone(decoded))['text'])
        (folder / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'CamembertTokenizer'}))
        numbers = generate('--tokens', ','.join(map(str, ids)))
        self.assertEqual(numbers['tokens'], said['tokens'])
        self.assertNotIn('text', numbers)

    def test_bf16(self):
        """The first token, whose logit is far from the others, is that of 32-true."""
        example = self.expected['llama'][0]
        ours = self.found('llama_endless', *example['words'], '--precision', 'bf16-true')
        self.assertEqual(len(ours['tokens']), 24)
        self.assertEqual(ours['tokens'][0], example['tokens'][0])

    def test_masks_of_transformers(self):
        for family in FAMILIES:
            with self.subTest(family):
                said = npu_tool('tokenize', '--tokenizer', self.folder / f'{family}_marked', '--messages', self.folder / 'masked_chats.json', '--assistant-mask', '--json')
                found = json.loads(self.assertDone(said))
                self.assertEqual([[each['ids'], each['assistant_masks']] for each in found], self.masks[family])
                self.assertTrue(any(0 < sum(mask) < len(mask) for _, mask in self.masks[family]))

    def train(self, name, family, data, *more):
        config = self.config(f"""
seed: 3
device: cpu
precision: 32-true
model: {{weights: {self.folder}/{family}}}
data: {{name: documents, train: {self.folder}/{data}.jsonl, tokenizer: {self.folder}/{family}, context: 250, batch_size: 3, num_workers: 0}}
task: {{name: language_model}}
optimizer: {{name: sgd, lr: 0, momentum: 0}}
trainer: {{max_epochs: 1, threads: 1, log_every_n_steps: 1, num_sanity_val_steps: 0}}
output: {{logger: [csv]}}
""")
        self.assertDone(train_app(config, f'output.dir={self.dir}/{name}', *more))
        return rows(self.dir / name, 'train')

    def test_the_loss_of_texts_and_of_answers(self):
        for family in FAMILIES:
            for data in ('texts', 'chats'):
                with self.subTest(family, data=data):
                    row = self.train(f'{family}_{data}', family, data)[-1]
                    self.assertAlmostEqual(float(row['loss']) / self.losses[family][data], 1, delta=2e-5)

    def test_the_loss_of_all_answers(self):
        """If a template marks the answers, the tokens of transformers' mask count; otherwise those from the generation prompt on."""
        for family in FAMILIES if FULL else FAMILIES[:1]:
            with self.subTest(family):
                row = self.train(f'{family}_marked', family, 'chats', 'data.answers=all', f'data.tokenizer={self.folder}/{family}_marked')[-1]
                self.assertAlmostEqual(float(row['loss']) / self.losses[family]['marked'], 1, delta=2e-5)
        row = self.train('all_answers', 'gpt2', 'chats', 'data.answers=all')[-1]
        self.assertAlmostEqual(float(row['loss']) / self.losses['gpt2']['answers'], 1, delta=2e-5)
        self.assertNotAlmostEqual(self.losses['gpt2']['answers'] / self.losses['gpt2']['chats'], 1, delta=1e-4)

    def test_adapters_learn_answers_that_end(self):
        steps = self.train('tuned', 'gpt2', 'chats', f'model={{weights: {self.folder}/gpt2, lora: {{rank: 8, alpha: 16, targets: [attention, mlp]}}}}', 'optimizer={name: adamw, lr: 0.02}',
                           'trainer.max_epochs=30')
        self.assertLess(float(steps[-1]['loss']), 0.5 * float(steps[0]['loss']))
        said = json.loads(self.assertDone(npu_tool('generate', '--checkpoint', run_dir(self.dir / 'tuned'), '--tokenizer', self.folder / 'gpt2', '--prompt', 'a', '--max-new-tokens', '2', '--json')))
        self.assertEqual(len(said['tokens']), 2)
        folder = self.dir / 'ended'  # a tokenizer without generation_config.json
        folder.mkdir()
        shutil.copy(self.folder / 'gpt2/tokenizer.json', folder)

        def tokens(config):
            (folder / 'tokenizer_config.json').write_text(json.dumps(config))
            return json.loads(self.assertDone(npu_tool('generate', '--checkpoint', run_dir(self.dir / 'tuned'), '--tokenizer', folder, '--prompt', 'a', '--max-new-tokens', '6', '--temperature', '0', '--json')))['tokens']
        endless = tokens({})
        self.assertEqual(len(endless), 6)
        [end] = [text for text, i in json.loads((folder / 'tokenizer.json').read_text())['model']['vocab'].items() if i == endless[2]]
        self.assertEqual(tokens({'eos_token': end}), endless[:endless.index(endless[2]) + 1])

    def test_mistakes_of_data(self):
        (self.dir / 'bad.jsonl').write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
        fails = lambda *more: train_app(self.config(f'model: {{weights: {self.folder}/gpt2}}\ndata: {{name: documents, train: {self.dir}/bad.jsonl, context: 64}}\ntask: {{name: language_model}}\n'), *more)
        self.assertFails(fails(), 3, 'line 1: messages need a chat template', 'data.tokenizer=FOLDER')
        self.assertFails(fails(f'data.tokenizer={self.folder}/gpt2'), 3, 'the last message is not one of the assistant')
        self.assertFails(fails(f'data.tokenizer={self.folder}/gpt2', 'data.answers=all'), 3, 'no message is one of the assistant')
        # Qwen3's template omits the thoughts of earlier answers.
        (self.dir / 'bad.jsonl').write_text((self.folder / 'chats.jsonl').read_text())
        words = f'data.tokenizer={self.folder}/qwen2', 'data.answers=all', 'data.context=256'
        self.assertFails(fails(*words), 3, 'line 3: the chat template writes message 3, an answer, differently when others follow', '{% generation %}')
        skipped = fails(*words, 'data.on_bad_sample=skip', f'model.weights={self.folder}/qwen2', 'data.batch_size=2', 'trainer.max_steps=1', f'output.dir={self.dir}/skipped')
        self.assertDone(skipped)
        self.assertIn('1 document omitted (the chat template makes no text, or none with known answers)', ''.join(skipped[1:]))
        self.assertFails(fails(f'data.tokenizer={self.dir}'), 3, 'there is no tokenizer; allowed: tokenizer.json, tokenizer.model, spiece.model')

    def test_mistakes(self):
        self.assertFails(self.generate('gpt2', '--prompt', 'a', '--prompts', 'x.txt'), 2, 'give exactly one of')
        self.assertFails(self.generate('gpt2', '--prompt', 'a', '--stop', ''), 2, '--stop is empty')
        self.assertFails(self.generate('gpt2', '--prompt', 'a', '--batch', '2'), 2, '--batch 2 is for --prompts FILE')
        self.assertFails(self.generate('gpt2', '--prompts', 'x.txt', '--batch', '0'), 2, '--batch')
        self.assertFails(self.generate('gpt2', '--prompt', 'a', '--weights', 'x'), 2, 'has its own weights')
        self.assertFails(self.generate('gpt2', '--prompt', 'a', '--repetition-penalty', '0'), 2, '0 is not allowed')
        self.assertFails(self.generate('gpt2', '--prompt', 'a', '--tokenizer', self.dir), 3, 'tokenizer.json')
        self.assertFails(self.generate('gpt2', '--tokens', '1', '--precision', '8-bit'), 2, '--precision')
        (self.dir / 'prompts.txt').write_text('a\n\nb\n')
        self.assertFails(self.generate('gpt2', '--prompts', self.dir / 'prompts.txt'), 3, 'line 2: the prompt is empty')
        (self.dir / 'chat.json').write_text('[{"content": "x"}]')
        self.assertFails(self.generate('gpt2', '--messages', self.dir / 'chat.json'), 3, "'role' is missing")
        vocabulary = json.loads((self.folder / 'gpt2/tokenizer.json').read_text())
        vocabulary['model']['vocab'] |= {f'more{i}': 5000 + i for i in range(3)}
        (self.dir / 'tokenizer.json').write_text(json.dumps(vocabulary))
        self.assertFails(self.generate('gpt2', '--prompt', 'a', '--tokenizer', self.dir), 3, 'has 5003 tokens, and the model')


if __name__ == '__main__': main()
