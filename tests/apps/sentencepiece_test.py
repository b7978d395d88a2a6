"""npu_tool tokenize with models of SentencePiece, against the packages sentencepiece and tokenizers: equal ids and equal texts for odd strings.

800 strings; with NPU_TRAIN_FULL_TESTS=1, 20,000, and models that are trained in more ways."""
import json
import pathlib
import unittest

import sentencepiece_model
from peers import MODELS_PYTHON, Peer
from programs import FULL, main, npu_tool
from tokenizer_test import Agreement

PEER = Peer(MODELS_PYTHON, tokenizers='import tokenizers', sentencepiece='import sentencepiece')
DRIVER = pathlib.Path(__file__).with_name('python_sentencepiece.py')


class SentencePiece(Agreement):
    @unittest.skipUnless(PEER.has('tokenizers', 'sentencepiece'), 'sentencepiece is not installed: scripts/setup --dev')
    def test_models_of_sentencepiece(self):
        count, words, tokenizers = (20000, ['all'], 12) if FULL else (800, [], 8)
        self.assertAgrees(PEER, DRIVER, count, *words, tokenizers=tokenizers)

    def test_a_model_of_sentencepiece_of_the_command_line(self):
        (self.dir / 'tokenizer.model').write_bytes(sentencepiece_model.small('ab'))
        tokenize = ('tokenize', '--tokenizer', self.dir)
        self.assertEqual(self.assertDone(npu_tool(*tokenize, 'ab é')), '259\t▁\n260\ta\n261\tb\n259\t▁\n198\t<0xC3>\n172\t<0xA9>\n')
        self.assertEqual(self.assertDone(npu_tool('tokenize', '--tokenizer', self.dir / 'tokenizer.model', '--decode', '259,260,198,172')), 'aé\n')
        (self.dir / 'a.txt').write_text('ab')
        write = ('tokenize', self.dir / 'a.txt', '--tokenizer', self.dir, '--to', self.dir / 'out', '--val-fraction', '0', '--json')
        (self.dir / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'LlamaTokenizer', 'eos_token': '</s>'}))
        found = json.loads(self.assertDone(npu_tool(*write)))
        self.assertEqual((found['train_tokens'], found['vocab_size']), (4, 262))
        (self.dir / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'CamembertTokenizer'}))
        self.assertFails(npu_tool(*tokenize, 'a'), 3, "the tokenizer_class 'CamembertTokenizer' is not supported", 'tokenizer.json')
        (self.dir / 'tokenizer.model').write_bytes(b'\x0a\xff')
        self.assertFails(npu_tool(*tokenize, 'a'), 3, 'tokenizer.model: is damaged, or is not a model of SentencePiece')


if __name__ == '__main__': main()
