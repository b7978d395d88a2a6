"""Folders of Hugging Face with random weights, a tokenizer and a chat template, and the texts that transformers generates from them, for generate_test.py:
python_generate.py FOLDER

Writes FOLDER/FAMILY as save_pretrained does, and FOLDER/FAMILY_marked with a template that marks answers. Prints for each family the examples,
{'words': options of npu_tool generate, 'tokens', 'text'}, the losses of FOLDER/chats.jsonl and texts.jsonl, and ids and masks of FOLDER/masked_chats.json."""
import json
import pathlib
import random
import sys
import warnings

warnings.simplefilter('ignore')
import any_torchvision  # noqa: E402, F401
import torch  # noqa: E402
import transformers  # noqa: E402
from tokenizers import normalizers, pre_tokenizers  # noqa: E402

import python_chat  # noqa: E402
import python_tokenizers as tokenizers  # noqa: E402

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
WIDTHS = dict(hidden_size=32, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
PROMPTS = ('import os', 'def f(x):\n    return', '\u65e5\u672c\u8a9e, caf\u00e9')
COUNT = 24
say = python_chat.say
CHATS = [[say('user', 'What is 2 + 2?'), say('assistant', 'It is 4.')], [say('user', 'import'), say('assistant', 'os')],
         [say('system', 'Be brief.'), say('user', 'caf\u00e9?'), say('assistant', 'A place.'), say('user', 'Where?'), say('assistant', 'Here,\nor there.')]]


# Templates that mark answers, with borders at special tokens and line ends, which no token crosses.
MARKED = {
    'gpt2': '''{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{%
endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}''',
    'llama': '''{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ ' ' + m.content + eos_token }}{% endgeneration %}{%
else %}{{ '[' + m.role + '] ' + m.content + eos_token }}{% endif %}{% endfor %}''',
    'qwen2': '''{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
            {{- message.content + '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}'''}
MASKED_CHATS = [*CHATS, [say('assistant', 'first'), say('user', 'x')], [say('user', 'no answer')],
                [say('system', 'S'), say('user', 'a'), say('assistant', ''), say('user', 'caf\u00e9 \u4e2d'), say('assistant', '\u4e2d\u6587 <|im_end|> caf\u00e9'), say('user', 'more')]]


def families(texts):
    special = tokenizers.special
    chat = [special('<|im_start|>'), special('<|im_end|>')]
    yield ('gpt2', 'GPT2LMHeadModel', 'GPT2Config', dict(n_positions=256, n_embd=32, n_layer=2, n_head=4), python_chat.CHATML,
           tokenizers.of_bytes(texts, pre_tokenizers.ByteLevel(add_prefix_space=False), added=[special('<|endoftext|>'), *chat]))
    yield ('llama', 'LlamaForCausalLM', 'LlamaConfig', WIDTHS, python_chat.LLAMA3,
           tokenizers.of_bytes(texts, tokenizers.patterns(tokenizers.LLAMA3), None, [special('<|endoftext|>'), special('<|begin_of_text|>')], tokenizers.llama3_template,
                               ignore_merges=True))
    yield ('qwen2', 'Qwen2ForCausalLM', 'Qwen2Config', WIDTHS | {'tie_word_embeddings': True}, python_chat.QWEN3,
           tokenizers.of_bytes(texts, tokenizers.patterns(tokenizers.QWEN2), normalizers.NFC(), [special('<|endoftext|>'), *chat]))


def network(name, config_name, sizes, vocabulary):
    torch.manual_seed(7)
    end = vocabulary - 1
    config = getattr(transformers, config_name)(vocab_size=vocabulary + 3, bos_token_id=end, eos_token_id=end, pad_token_id=None, **sizes)
    net = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for value in net.parameters(): value.add_(torch.randn_like(value) * 0.15)
    return net


def examples(net, tokenizer):
    def continued(ids, words, **options):
        with torch.no_grad():
            out = net.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False, max_new_tokens=COUNT, pad_token_id=0, **options)
        tokens = out[0, len(ids):].tolist()
        return {'words': words, 'tokens': tokens, 'text': tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)}

    for prompt in PROMPTS:
        ids = tokenizer(prompt).input_ids
        plain = continued(ids, ['--prompt', prompt])
        yield plain
        yield continued(ids, ['--prompt', prompt, '--repetition-penalty', '1.7'], repetition_penalty=1.7)
        # A text from the middle of the continuation, with complete characters.
        middle = tokenizer.decode(plain['tokens'][6:9])
        if '\ufffd' not in middle and middle in plain['text']:
            stop = continued(ids, ['--prompt', prompt, '--stop', 'never there', '--stop', middle], stop_strings=[middle], tokenizer=tokenizer)
            yield stop | {'text': stop['text'][:stop['text'].index(middle)]}
    messages = [{'role': 'user', 'content': 'What is caf\u00e9?'}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    yield continued(ids, ['--messages', messages])


def loss_of(net, samples):
    """The mean cross entropy over the tokens of (ids, mask) whose mask is 1."""
    loss, count = 0.0, 0
    for ids, mask in samples:
        chosen = torch.tensor(mask[1:], dtype=torch.bool)
        target = torch.tensor(ids[1:])[chosen]
        with torch.no_grad(): logits = net(torch.tensor([ids])).logits[0, :-1][chosen]
        loss += torch.nn.functional.cross_entropy(logits, target, reduction='sum').item()
        count += len(target)
    return loss / count


def after(ids, given): return ids, [0] * given + [1] * (len(ids) - given)


def losses(net, tokenizer):
    """The losses of the chats, as TRL divides them into prompt and completion, and of the texts."""
    chats, texts = [], []
    for chat in CHATS:
        ids = lambda part, prompt: tokenizer.apply_chat_template(part, add_generation_prompt=prompt, tokenize=True, return_dict=False)
        prompt, whole = ids(chat[:-1], True), ids(chat, False)
        assert whole[:len(prompt)] == prompt
        chats.append(after(whole, len(prompt)))
    for text in PROMPTS: texts.append(after(tokenizer(text, add_special_tokens=False).input_ids + [tokenizer.eos_token_id], 1))
    return {'chats': loss_of(net, chats), 'texts': loss_of(net, texts)}


def masked(tokenizer, chats):
    found = [tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True) for chat in chats]
    return [(each['input_ids'], each['assistant_masks']) for each in found]


def answers_of_chatml(tokenizer):
    """All answers of the chats by hand: from behind the generation prompt to the line end behind <|im_end|>."""
    out = []
    for chat in CHATS:
        ids, mask = [], []
        for i, message in enumerate(chat):
            text = '' if i or message['role'] == 'system' else '<|im_start|>system\nYou are helpful.<|im_end|>\n'
            answer = message['content'] + '<|im_end|>\n'
            for part, counts in ((text + f"<|im_start|>{message['role']}\n", 0), (answer, int(message['role'] == 'assistant'))):
                more = tokenizer(part, add_special_tokens=False).input_ids
                ids, mask = ids + more, mask + [counts] * len(more)
        assert ids == tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
        out.append((ids, mask))
    return out


def main(folder):
    (folder / 'chats.jsonl').write_text(''.join(json.dumps({'messages': chat}) + '\n' for chat in CHATS))
    (folder / 'masked_chats.json').write_text(json.dumps(MASKED_CHATS))
    (folder / 'texts.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in PROMPTS))
    texts = tokenizers.training_texts(random.Random(3))[:260]
    out = {}
    for family, name, config, sizes, template, tokenizer in families(texts):
        net = network(name, config, sizes, tokenizer.get_vocab_size())
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token='<|endoftext|>', bos_token='<|endoftext|>')
        fast.chat_template = template
        out[family] = {'examples': list(examples(net, fast)), 'losses': losses(net, fast)}
        if family == 'gpt2': out[family]['losses']['answers'] = loss_of(net, answers_of_chatml(fast))
        # The ninth token ends texts.
        net.generation_config.eos_token_id = [out[family]['examples'][0]['tokens'][8], 0]
        net.save_pretrained(folder / family)
        fast.save_pretrained(folder / family)
        fast.chat_template = MARKED[family]
        fast.save_pretrained(folder / f'{family}_marked')
        out[family]['masks'] = masked(fast, MASKED_CHATS)
        out[family]['losses']['marked'] = loss_of(net, masked(fast, CHATS))
        net.generation_config.eos_token_id = None
        (folder / f'{family}_endless').mkdir()
        for path in (folder / family).iterdir():
            if path.name != 'generation_config.json': (folder / f'{family}_endless' / path.name).symlink_to(path)
    print(json.dumps(out))


if __name__ == '__main__': main(pathlib.Path(sys.argv[1]))
