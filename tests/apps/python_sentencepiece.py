"""Models of SentencePiece as published ones are, for sentencepiece_test.py: python_sentencepiece.py FOLDER TEXTS SEED [all]

Writes FOLDER/texts.jsonl, and for each model FOLDER/NAME/tokenizer.model, tokenizer_config.json, ids.jsonl (what the package sentencepiece makes of the
parts of each text between special tokens, in the order of transformers) and decoded.json. FOLDER/precompiled_NAME/tokenizer.json have the normalizer
Precompiled; what the package tokenizers makes of the texts is next to them. Prints the names as a JSON list. Without `all`, two models are trained, and
the others are made from these."""
import io
import json
import pathlib
import random
import re
import struct
import sys
import unicodedata

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import python_tokenizers
from sentencepiece_model import NORMAL, USER_DEFINED, charsmap, field, fields, piece

LLAMA = dict(model_type='bpe', byte_fallback=True, normalization_rule_name='identity', remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True)
T5 = dict(model_type='unigram', normalization_rule_name='nmt_nfkc', pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
ALBERT = T5 | dict(unk_id=1, eos_id=-1, control_symbols=['[CLS]', '[SEP]', '[MASK]'], normalization_rule_name='nfkc')
OTHER = dict(model_type='unigram', byte_fallback=True, normalization_rule_name='nmt_nfkc_cf', treat_whitespace_as_suffix=True)
LLAMA_CONFIG = {'tokenizer_class': 'LlamaTokenizer', 'bos_token': '<s>', 'eos_token': '</s>', 'unk_token': {'content': '<unk>', 'normalized': True}, 'add_bos_token': True, 'add_eos_token': True}


def trained(texts, **options):
    model = io.BytesIO()
    lines = [line for text in texts for line in text.splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=1500, character_coverage=0.99, hard_vocab_limit=False, num_threads=1,
                                             **options)
    return model.getvalue()


def processor(model): return sentencepiece.SentencePieceProcessor(model_proto=model)


def without_prefix(model):
    """A second normalizer_spec changes the first one: add_dummy_prefix is false. Not every release of the package can override it."""
    return model + field(3, field(3, 0))


def with_symbols(model, *symbols):
    """The model with symbols of the user, some of which may be its pieces."""
    out, missing = b'', [*symbols]
    for number, value in fields(model):
        if number == 1 and (text := dict(fields(value))[1].decode()) in missing:
            missing.remove(text)
            value += field(3, USER_DEFINED)  # in place of its type: the last value counts
        out += field(number, value)
    return out + b''.join(piece(text, kind=USER_DEFINED) for text in missing)


class Reference:
    """Ids as the classes of transformers on top of SentencePiece make them: the special tokens of a text are found first."""

    def __init__(self, model, legacy=True, before=(), behind=(), clean=lambda text: text):
        self.whole, self.bare = processor(model), processor(without_prefix(model))
        self.legacy, self.before, self.behind, self.clean = legacy, before, behind, clean
        special = [i for i in range(len(self.whole)) if self.whole.is_control(i) or self.whole.is_unknown(i)]
        self.special = {self.whole.id_to_piece(i): i for i in special}
        self.sentinels = {}

    def add_sentinels(self, tokens):
        self.sentinels = tokens
        self.special |= tokens

    def part(self, text, first):
        if self.legacy or first: return self.whole.encode(text)
        if not text.startswith((' ', '▁')): return self.bare.encode(text)
        # `legacy: false` keeps the space with which a part begins.
        return self.bare.encode('<unk>' + text)[len(self.bare.encode('<unk>')):]

    def ids(self, text):
        found = re.compile('(' + '|'.join(map(re.escape, sorted(self.special, key=len, reverse=True))) + ')')
        out, parts = [*self.before], found.split(text)  # texts and tokens alternately
        for i, part in enumerate(parts):
            if i % 2:
                out.append(self.special[part])
                continue
            # The sentinels of T5 take the spaces around them.
            if i > 0 and parts[i - 1] in self.sentinels: part = part.lstrip()
            if i + 1 < len(parts) and parts[i + 1] in self.sentinels: part = part.rstrip()
            if part: out += self.part(self.clean(part), i == 0)
        return out + [*self.behind]

    def text(self, ids):
        special = {*self.special.values()}
        return self.whole.decode([i for i in ids if i not in special])


def albert_text(text):
    text = unicodedata.normalize('NFKD', text.replace('``', '"').replace("''", '"'))
    return ''.join(c.lower() for c in text if unicodedata.category(c)[0] != 'M')


def with_commas_apart(model):
    """The model in which pieces of digits and a comma are as improbable as transformers makes them."""
    out = b''
    for number, value in fields(model):
        of = dict(fields(value)) if number == 1 else {1: b''}
        if re.search(b'[0-9],$', of[1]): value = field(1, of[1]) + field(2, struct.unpack('<f', of[2])[0] - 100) + field(3, of.get(3, NORMAL))
        out += field(number, value)
    return out


def references(texts, all_families):
    """(name, file, model, tokenizer_config.json, reference)"""
    few = texts[:6] + texts[-250:]
    llama = trained(few, **LLAMA)
    yield 'llama2', 'tokenizer.model', llama, LLAMA_CONFIG | {'legacy': True}, Reference(llama, before=[1], behind=[2])
    yield 'mistral', 'tokenizer.model', llama, LLAMA_CONFIG | {'legacy': False}, Reference(llama, legacy=False, before=[1], behind=[2])
    gemma = with_symbols(without_prefix(llama), '<h1>', '[@BOS@]', '▁▁', '▁▁▁▁', 'Dog', 'ab')
    yield 'gemma', 'tokenizer.model', gemma, None, Reference(gemma)
    t5 = trained(few, **T5)
    for name, legacy in (('t5', True), ('t5_new', False)):
        reference = Reference(t5, legacy=legacy, behind=[1])
        reference.add_sentinels({f'<extra_id_{i}>': len(reference.whole) + 2 - i for i in range(3)})
        yield name, 'spiece.model', t5, {'tokenizer_class': 'T5Tokenizer', 'extra_ids': 3, 'legacy': legacy}, reference
    user = with_symbols(t5, '<h1>', 'Dog', 'ab', '##')
    yield 'user_defined', 'tokenizer.model', user, None, Reference(user)
    if not all_families: return
    albert = trained(few, **ALBERT)
    reference = Reference(with_commas_apart(albert), clean=albert_text)
    reference.before, reference.behind = [reference.special['[CLS]']], [reference.special['[SEP]']]
    yield 'albert', 'spiece.model', albert, {'tokenizer_class': 'AlbertTokenizer', 'do_lower_case': True}, reference
    other = trained(few, **OTHER)
    yield 'suffix', 'tokenizer.model', other, {'eos_token': '</s>'}, Reference(other)


def precompiled(models_of):
    """Tokenizers of the package tokenizers: one shows every byte of the normalised text, the other is T5's."""
    for name in filter(models_of.__contains__, ('t5', 'albert', 'suffix')):
        out = Tokenizer(models.BPE(vocab={'<unk>': 0} | {f'<0x{i:02X}>': i + 1 for i in range(256)}, merges=[], unk_token='<unk>', byte_fallback=True))
        out.normalizer, out.decoder = normalizers.Precompiled(charsmap(models_of[name])), decoders.ByteFallback()
        yield f'precompiled_{name}', out
    t5 = processor(models_of['t5'])
    out = Tokenizer(models.Unigram([(t5.id_to_piece(i), t5.get_score(i)) for i in range(len(t5))], 2))
    out.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(models_of['t5'])), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(' {2,}'), '▁')])
    out.pre_tokenizer, out.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    yield 'precompiled_unigram', out


def write(folder, ids, decoded):
    (folder / 'ids.jsonl').write_text(''.join(json.dumps({'tokens': each}) + '\n' for each in ids))
    (folder / 'decoded.json').write_text(json.dumps({'without_special': decoded}))
    return folder.name


def main(folder, count, seed, all_families):
    source = random.Random(seed)
    texts = [*python_tokenizers.odd_texts(count, source, python_tokenizers.drawn_points(source)), '', ' ', '▁', '<extra_id_0> a <extra_id_2>b', '1,000, 2,5']
    (folder / 'texts.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    names, models_of = [], {}
    for name, file, model, config, reference in references(python_tokenizers.training_texts(source), all_families):
        models_of[name] = model
        to = folder / name
        to.mkdir()
        (to / file).write_bytes(model)
        if config is not None: (to / 'tokenizer_config.json').write_text(json.dumps(config))
        ids = [reference.ids(text) for text in texts]
        names.append(write(to, ids, [reference.text(each) for each in ids]))
    for name, tokenizer in precompiled(models_of):
        (folder / name).mkdir()
        tokenizer.save(str(folder / name / 'tokenizer.json'))
        ids = [tokenizer.encode(text).ids for text in texts]
        names.append(write(folder / name, ids, [tokenizer.decode(each) for each in ids]))
    print(json.dumps(names))


if __name__ == '__main__': main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ['all'])
