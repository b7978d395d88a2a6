"""Tokenizers as published models have them, trained by the package tokenizers, for tokenizer_test.py: python_tokenizers.py FOLDER TEXTS SEED

Writes FOLDER/texts.jsonl, and for each tokenizer FOLDER/NAME/tokenizer.json, ids.jsonl (what the package makes of each text) and decoded.json: their
texts with and without special tokens. Prints the names as a JSON list."""
import json
import pathlib
import random
import string
import sys
import sysconfig
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r'|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}' + REST
LLAMA3 = CONTRACTIONS + r'|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}' + REST
DEEPSEEK = (r'\p{N}{1,3}', '[一-龥぀-ゟ゠-ヿ]+',
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SCRIPTS = ((0x41, 0x5a), (0x61, 0x7a), (0xc0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x620, 0x64a), (0x905, 0x939), (0xe01, 0xe30), (0x3041, 0x3096),
           (0x4e00, 0x4fff), (0xac00, 0xacff), (0x1f600, 0x1f64f))
SPACES = [*range(9, 14), 32, 0x85, 0xa0, 0x1680, 0x180e, *range(0x2000, 0x200e), 0x2028, 0x2029, 0x202f, 0x205f, 0x2060, 0x3000, 0xfeff]
CONTROLS = [*range(32), *range(0x7f, 0xa0), 0xad, 0x61c, 0x200e, 0x200f, *range(0x202a, 0x202f), 0xd7ff, 0xe000, 0xfffd, 0xfffe, 0xffff, 0x10ffff, 0xfff9]
EMOJI = ['👩\u200d👩\u200d👧', '🏳️\u200d🌈', '👍🏽', '🇫🇷', '1️⃣', '❤️', '🧑🏿\u200d🚀']
WORDS = ("don't I'M we'LL 'S they've can't the old dog ... 1234567 3.14159 x=y+1; foo_bar C++ naïve İstanbul Straße ﬁne ½ ² Å Ⅳ ǅ ſ K 'ſ Ω ㎏ ﷺ 한국어 日本語 中文字 हिन्दी ไทย "
         'العربية עברית').split(' ')
ADDED = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<s>', '</s>', '<mask>', '[MASK]', '[SEP]', '<|begin_of_text|>', '<|eot_id|>', '<unk>', 'Dog', 'ab', 'été',
         'e\u0301te\u0301', '▁', 'Ġ', '##a', '<0x41>', '<|endoftext', '[UNK]', '[CLS]', '<pad>']


def training_texts(source):
    library = pathlib.Path(sysconfig.get_paths()['stdlib'])
    out = [path.read_text(errors='replace')[:20000] for path in sorted(library.glob('*.py'))[:20]]
    for _ in range(800):
        first, last = source.choice(SCRIPTS)
        out.append(' '.join(''.join(chr(source.randint(first, min(last, first + 40))) for _ in range(source.randint(1, 6))) for _ in range(8)))
    return out


def special(content, **more): return AddedToken(content, special=True, normalized=False, **more)


def of_bytes(texts, words, normalizer=None, added=(), post=None, **options):
    out = Tokenizer(models.BPE(**options))
    out.pre_tokenizer = words
    if normalizer: out.normalizer = normalizer
    out.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens(list(added))
    out.post_processor = post(out) if post else processors.ByteLevel(trim_offsets=False)
    return out


def patterns(*all_of_them):
    return pre_tokenizers.Sequence([*(pre_tokenizers.Split(Regex(p), 'isolated') for p in all_of_them), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def pair(tokenizer, token): return token, tokenizer.token_to_id(token)


def llama3_template(tokenizer):
    begin = '<|begin_of_text|>'
    template = processors.TemplateProcessing(single=f'{begin} $A', pair=f'{begin} $A {begin}:1 $B:1', special_tokens=[pair(tokenizer, begin)])
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), template])


def early(tokenizer):
    """As early versions of the package wrote it: the model has no type, and a merge is one text."""
    changed = json.loads(tokenizer.to_str())
    del changed['model']['type']
    if 'merges' in changed['model']: changed['model']['merges'] = ['#version: 0.2', *(' '.join(merge) for merge in changed['model']['merges'])]
    return changed


def byte_level(texts):
    yield 'gpt2', early(of_bytes(texts, pre_tokenizers.ByteLevel(add_prefix_space=False), added=[special('<|endoftext|>')]))
    yield 'roberta', of_bytes(texts, pre_tokenizers.ByteLevel(add_prefix_space=True), added=[special('<s>'), special('</s>'), special('<mask>', lstrip=True)],
                              post=lambda t: processors.RobertaProcessing(pair(t, '</s>'), pair(t, '<s>')))
    yield 'qwen2', of_bytes(texts, patterns(QWEN2), normalizers.NFC(), [special('<|endoftext|>'), special('<|im_start|>'), special('<|im_end|>')])
    yield 'llama3', of_bytes(texts, patterns(LLAMA3), None, [special('<|begin_of_text|>'), special('<|eot_id|>', rstrip=True)], llama3_template, ignore_merges=True)
    yield 'deepseek', of_bytes(texts, patterns(*DEEPSEEK), added=[special('<|endoftext|>')])


def bert(texts, **options):
    out = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    out.normalizer, out.pre_tokenizer, out.decoder = normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    out.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=1500, show_progress=False, special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']))
    template = {'single': '[CLS] $A [SEP]', 'pair': '[CLS] $A [SEP] $B:1 [SEP]:1', 'special_tokens': [('[CLS]', 2), ('[SEP]', 3)]}
    out.post_processor = processors.TemplateProcessing(**template) if options.get('lowercase', True) else processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2))
    return out


def llama2(texts):
    out = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    out.normalizer = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    out.pre_tokenizer = pre_tokenizers.Split('▁', 'merged_with_next')  # needed only for the training
    out.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1500, show_progress=False, special_tokens=['<unk>', '<s>', '</s>', *(f'<0x{i:02X}>' for i in range(256))]))
    out.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(' ', 1, 0)])
    out.post_processor = processors.TemplateProcessing(single='<s> $A', pair='<s> $A <s>:1 $B:1', special_tokens=[('<s>', 1)])
    changed = json.loads(out.to_str())
    changed['pre_tokenizer'] = None
    changed['added_tokens'] = [token for token in changed['added_tokens'] if token['id'] < 3]
    return changed


def unigram(texts):
    out = Tokenizer(models.Unigram())
    out.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(' {2,}'), ' ')])
    out.pre_tokenizer, out.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    out.train_from_iterator(texts[:8] + texts[-300:], trainers.UnigramTrainer(vocab_size=900, show_progress=False, special_tokens=['<pad>', '</s>', '<unk>'], unk_token='<unk>'))
    out.post_processor = processors.TemplateProcessing(single='$A </s>', pair='$A </s> $B </s>', special_tokens=[('</s>', 1)])
    return out


def unigram_ties(source):
    """Scores of 17 digits, as published models have them: of `xyyy`, the last bits of the scores decide between `x yy y` and `x y yy`."""
    tokens = [*string.ascii_lowercase, *(2 * letter for letter in string.ascii_lowercase)]
    return Tokenizer(models.Unigram([('<unk>', 0.0), *((token, -3 - source.random()) for token in tokens)], 0))


def others(texts):
    """Tokenizers with every other part that npu_train has."""
    out = Tokenizer(models.WordLevel(unk_token='[UNK]'))
    out.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    out.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation('merged_with_previous')])
    out.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=1500, special_tokens=['[UNK]'], show_progress=False))
    yield 'words', out
    words = (pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation('contiguous'), pre_tokenizers.Punctuation('merged_with_next'),
             pre_tokenizers.Split(Regex(r'\s+'), 'merged_with_previous', invert=True), pre_tokenizers.Split(Regex(r'\w+|[^\w\s]'), 'removed', invert=True),
             pre_tokenizers.CharDelimiterSplit('e'), pre_tokenizers.Digits())
    for i, splits in enumerate(words):
        affixes = {'end_of_word_suffix': '</w>'} | ({'continuing_subword_prefix': '##'} if i % 2 else {})
        out = Tokenizer(models.BPE(unk_token='[UNK]', **affixes))
        out.pre_tokenizer, out.decoder = splits, decoders.BPEDecoder()
        if i % 3 == 0: out.normalizer = normalizers.NFD()
        out.train_from_iterator(texts[:6] + texts[-200:], trainers.BpeTrainer(vocab_size=800, special_tokens=['[UNK]'], show_progress=False, **affixes))
        yield f'bpe_{i}', out


def tokenizers(texts):
    yield from byte_level(texts)
    yield 'bert', early(bert(texts))
    cased = bert(texts, lowercase=False)
    cased.add_tokens([AddedToken('Dog', single_word=True, normalized=True), AddedToken('été', normalized=True), AddedToken('ab', rstrip=True, lstrip=True)])
    yield 'bert_cased', cased
    old = llama2(texts)
    yield 'llama2', old
    new = old | {'normalizer': None, 'pre_tokenizer': {'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'first', 'split': False}}
    yield 'llama2_new', new
    yield 'unigram', unigram(texts)
    yield 'unigram_ties', unigram_ties(random.Random(1))
    yield from others(texts)


def agreed(points):
    """The characters whose properties are the same in the tables of the package, which are those of several versions of Unicode, and in Python's."""
    punctuation, digits = pre_tokenizers.Punctuation('removed'), pre_tokenizers.Digits(True)
    letter, number = (pre_tokenizers.Split(Regex(p), 'removed') for p in (r'\p{L}', r'\p{N}'))
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    accents = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    marks, lower = normalizers.StripAccents(), normalizers.Lowercase()
    forms = [(form, getattr(normalizers, form)()) for form in ('NFC', 'NFD', 'NFKC', 'NFKD')]
    for point in points:
        c = chr(point)
        of = unicodedata.category(c)
        same = (not letter.pre_tokenize_str(c)) == (of[0] == 'L') and (not number.pre_tokenize_str(c)) == (of[0] == 'N')
        same = same and (not marks.normalize_str(c)) == (of[0] == 'M') and lower.normalize_str(c) == c.lower()
        same = same and (c.isascii() or (not punctuation.pre_tokenize_str(c)) == (of[0] == 'P'))
        same = same and (len(digits.pre_tokenize_str(f'a{c}a')) == 3) == (of[0] == 'N')
        same = same and (c in '\0\t\n\r\ufffd' or (not clean.normalize_str(c)) == (of in ('Cc', 'Cf', 'Co')))
        same = same and all(form.normalize_str(c) == unicodedata.normalize(name, c) for name, form in forms)
        if same and (unicodedata.normalize('NFD', c) != c or (not accents.normalize_str(c)) == (of == 'Mn')): yield point


def drawn_points(source):
    assigned = [p for p in range(0x110000) if unicodedata.category(chr(p)) not in ('Cn', 'Cs')]
    return sorted({*source.sample(assigned, 20000), *(p for first, last in SCRIPTS for p in range(first, last + 1))})


def odd_texts(count, source, points):
    letters, marks = ([p for p in points if unicodedata.category(chr(p))[0] == kind] for kind in 'LM')
    draw = lambda of, least, most: ''.join(chr(source.choice(of)) for _ in range(source.randint(least, most)))
    pieces = (lambda: draw(points, 1, 5), lambda: draw(letters, 1, 1) + draw(marks, 1, 3), lambda: draw(SPACES, 1, 4), lambda: draw(CONTROLS, 1, 2),
              lambda: source.choice(EMOJI), lambda: source.choice(ADDED), lambda: ' ' * source.randint(1, 9), lambda: draw(range(32, 127), 1, 12),
              lambda: source.choice(WORDS) * source.randint(1, 3), lambda: '\n' * source.randint(1, 3), lambda: source.choice(WORDS), lambda: draw(letters, 1, 8),
              lambda: ' ' + source.choice(WORDS), lambda: str(source.randint(0, 10 ** source.randint(1, 12))))
    for _ in range(count):
        text = ''.join(source.choice(pieces)() for _ in range(source.randint(0, 12)))
        yield text * source.randint(2, 100) if source.random() < 0.02 else text


def main(folder, count, seed):
    source = random.Random(seed)
    texts = [*odd_texts(count, source, [*agreed(drawn_points(source))]), *(x + 3 * y for x in string.ascii_lowercase for y in string.ascii_lowercase if x != y)]
    (folder / 'texts.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    names = []
    for name, tokenizer in tokenizers(training_texts(source)):
        to = folder / name
        to.mkdir()
        if isinstance(tokenizer, Tokenizer): tokenizer.save(str(to / 'tokenizer.json'))
        else: (to / 'tokenizer.json').write_text(json.dumps(tokenizer))
        tokenizer = Tokenizer.from_file(str(to / 'tokenizer.json'))
        ids = [tokenizer.encode(text).ids for text in texts]
        (to / 'ids.jsonl').write_text(''.join(json.dumps({'tokens': each}) + '\n' for each in ids))
        decoded = {key: [tokenizer.decode(each, skip_special_tokens=skip) for each in ids] for key, skip in (('text', False), ('without_special', True))}
        (to / 'decoded.json').write_text(json.dumps(decoded))
        names.append(name)
    print(json.dumps(names))


if __name__ == '__main__': main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
