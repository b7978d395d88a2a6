"""npu_tool tokenize --tokenizer against the package tokenizers: equal ids and equal texts for odd strings, with tokenizers as published models have them.

About 1,200 strings; with NPU_TRAIN_FULL_TESTS=1, 100,000."""
import json
import pathlib
import struct
import subprocess
import unittest

from peers import MODELS_PYTHON, Peer
from programs import BIN, FULL, ProgramTest, main, npu_tool

PEER = Peer(MODELS_PYTHON, tokenizers='import tokenizers')
DRIVER = pathlib.Path(__file__).with_name('python_tokenizers.py')
SIMPLE = {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': None, 'post_processor': None,
          'decoder': {'type': 'ByteLevel'},
          'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None, 'end_of_word_suffix': None, 'fuse_unk': False,
                    'byte_fallback': False, 'vocab': {'a': 0, 'b': 1, 'ab': 2, '</s>': 3, 'Ã': 4, '©': 5, '\n': 6}, 'merges': ['a b']}}


class Agreement(ProgramTest):
    def assertAgrees(self, peer, driver, count, *words, tokenizers):
        """The tokenizers that a script writes have the ids and texts that it expects."""
        code, out, err = peer.run(driver, self.dir, count, 11, *words)
        self.assertEqual(code, 0, err)
        names = json.loads(out.splitlines()[-1])
        self.assertEqual(len(names), tokenizers)
        for name in names:
            with self.subTest(name):
                of = lambda *words: json.loads(self.assertDone(npu_tool('tokenize', '--tokenizer', self.dir / name, *words, '--json')))
                expected = [json.loads(line)['tokens'] for line in (self.dir / name / 'ids.jsonl').read_text().splitlines()]
                ids = [each['ids'] for each in of('--file', self.dir / 'texts.jsonl')]
                texts = (self.dir / 'texts.jsonl').read_text().splitlines()
                self.assertEqual(len(ids), len(expected))
                for text, ours, theirs in zip(texts, ids, expected): self.assertEqual(ours, theirs, text)
                for key, decoded in json.loads((self.dir / name / 'decoded.json').read_text()).items():
                    flags = {'text': (), 'without_special': ('--no-special-tokens',)}[key]
                    ours = [each['text'] for each in of('--decode', '--file', self.dir / name / 'ids.jsonl', *flags)]
                    self.assertEqual(len(ours), len(decoded))
                    for text, mine, theirs in zip(texts, ours, decoded): self.assertEqual(mine, theirs, text)


class Tokenizers(Agreement):
    def simple(self, **more):
        (self.dir / 'tokenizer.json').write_text(json.dumps(SIMPLE | more))
        return ('tokenize', '--tokenizer', self.dir)

    @unittest.skipUnless(PEER.has('tokenizers'), 'tokenizers is not installed: scripts/setup --dev')
    def test_ids_and_texts_of_odd_strings(self):
        self.assertAgrees(PEER, DRIVER, 100000 if FULL else 500, tokenizers=19)

    def test_a_text_of_the_command_line_of_a_file_and_of_stdin(self):
        tokenize = self.simple()
        self.assertEqual(self.assertDone(npu_tool(*tokenize, 'abba')), '2\tab\n1\tb\n0\ta\n')
        self.assertEqual(json.loads(self.assertDone(npu_tool(*tokenize, 'abba', '--json'))), {'ids': [2, 1, 0], 'tokens': ['ab', 'b', 'a']})
        (self.dir / 'text.txt').write_text('ba\n')
        self.assertEqual(self.assertDone(npu_tool(*tokenize, '--file', self.dir / 'text.txt')), '1\tb\n0\ta\n6\t\\n\n')
        piped = subprocess.run([BIN / 'npu_tool', *map(str, tokenize)], input='bab', capture_output=True, text=True)
        self.assertEqual(piped.stdout, '1\tb\n2\tab\n')
        self.assertEqual(self.assertDone(npu_tool(*tokenize, '--decode', '2, 4,5')), 'ab\u00e9\n')
        self.assertEqual(self.assertDone(npu_tool(*tokenize, '--decode', '4')), '\ufffd\n')
        decoded = npu_tool(*tokenize, '--decode', '2,99')
        self.assertEqual(self.assertDone(decoded), 'ab\n')
        self.assertIn('99 is the number of no token', decoded[2])

    def test_mistakes(self):
        tokenize = self.simple()
        self.assertFails(npu_tool('tokenize', 'a'), 2, '--to FOLDER', '--tokenizer FOLDER')
        self.assertFails(npu_tool(*tokenize, 'a', 'b'), 2, 'give one text')
        self.assertFails(npu_tool(*tokenize, '--decode', '1,x'), 2, "'x' is not the number of a token")
        self.assertFails(npu_tool('tokenize', '--tokenizer', self.dir / 'none', 'a'), 3, 'none')
        (self.dir / 'lines.jsonl').write_text('{"text": "a"}\n{"txt": "a"}\n')
        self.assertFails(npu_tool(*tokenize, '--file', self.dir / 'lines.jsonl'), 3, 'line 2', "'text' is missing")
        (self.dir / 'bytes').write_bytes(b'ab\xff')
        self.assertFails(npu_tool(*tokenize, '--file', self.dir / 'bytes'), 3, 'byte 2 of the text is not UTF-8')
        tokenize = self.simple(normalizer={'type': 'Precompiled', 'precompiled_charsmap': 'AAAA'})
        self.assertFails(npu_tool(*tokenize, 'a'), 3, 'normalizer.precompiled_charsmap: 3 bytes; allowed: at least 4')
        tokenize = self.simple(normalizer={'type': 'Nmt'})
        self.assertFails(npu_tool(*tokenize, 'a'), 3, "normalizer: the type 'Nmt' is not supported")

    def test_files_of_tokens(self):
        self.simple()
        (self.dir / 'a.txt').write_text('abb')
        (self.dir / 'b.txt').write_text('')
        (self.dir / 'c.txt').write_text('ba')
        write = ('tokenize', self.dir / 'a.txt', self.dir / 'b.txt', self.dir / 'c.txt', '--tokenizer', self.dir, '--to', self.dir / 'out', '--val-fraction', '0.4', '--json')
        self.assertFails(npu_tool(*write), 3, 'there is no eos_token')
        (self.dir / 'tokenizer_config.json').write_text(json.dumps({'eos_token': {'content': '</s>'}}))
        found = json.loads(self.assertDone(npu_tool(*write)))
        self.assertEqual((found['train_tokens'], found['val_tokens'], found['empty_files'], found['vocab_size']), (4, 2, 1, 7))
        ids = lambda name: list(struct.unpack('<%dH' % (((self.dir / 'out' / name).stat().st_size - 1024) // 2), (self.dir / 'out' / name).read_bytes()[1024:]))
        self.assertEqual((ids('train.bin'), ids('val.bin')), ([2, 1, 3, 1], [0, 3]))


if __name__ == '__main__': main()
