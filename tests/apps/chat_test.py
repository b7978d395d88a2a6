"""Chat templates against transformers' apply_chat_template, by npu_tool tokenize --messages."""
import json
import pathlib
import unittest

from peers import MODELS_PYTHON, Peer
from programs import ProgramTest, main, npu_tool
from tokenizer_test import SIMPLE

PEER = Peer(MODELS_PYTHON, any_torchvision='import any_torchvision', transformers='import transformers')
DRIVER = pathlib.Path(__file__).with_name('python_chat.py')


class Chat(ProgramTest):
    def text(self, *words): return npu_tool('tokenize', '--tokenizer', self.dir, '--messages', *words)

    def template(self, template, **more):
        (self.dir / 'tokenizer.json').write_text(json.dumps(SIMPLE))
        (self.dir / 'tokenizer_config.json').write_text(json.dumps({'chat_template': template} | more))
        (self.dir / 'chat.json').write_text('[{"role": "user", "content": "ab"}]')
        return self.text(self.dir / 'chat.json')

    @unittest.skipUnless(PEER.has('transformers'), 'transformers is not installed: scripts/setup --dev')
    def test_texts_of_transformers(self):
        code, _, err = PEER.run(DRIVER, self.dir)
        self.assertEqual(code, 0, err)
        chats, expected = (json.loads((self.dir / name).read_text()) for name in ('chats.json', 'expected.json'))
        self.assertEqual(len(expected), 8)
        for name, texts in expected.items():
            with self.subTest(name):
                (self.dir / name / 'tokenizer.json').write_text(json.dumps(SIMPLE))
                for prompt, words in ((0, ()), (1, ('--generation-prompt',))):
                    accepted = [chat for chat, text in zip(chats, texts) if text[prompt] is not None]
                    (self.dir / 'chats.json').write_text(json.dumps(accepted))
                    found = json.loads(self.assertDone(npu_tool('tokenize', '--tokenizer', self.dir / name, '--messages', self.dir / 'chats.json', *words, '--json')))
                    self.assertEqual([each['text'] for each in found], [text[prompt] for text in texts if text[prompt] is not None])
                refused = [chat for chat, text in zip(chats, texts) if text[0] is None][:1]
                if refused:
                    (self.dir / 'chats.json').write_text(json.dumps(refused))
                    self.assertFails(npu_tool('tokenize', '--tokenizer', self.dir / name, '--messages', self.dir / 'chats.json'), 3, 'the template refuses the messages')

    def test_the_tokens_of_a_chat(self):
        self.assertEqual(self.assertDone(self.template("{{ messages[0].content }}b")), '2\tab\n1\tb\n')

    def test_the_tokens_of_an_answer(self):
        self.template('{{ messages[0].content }}{% generation %}ab{% endgeneration %}b')
        self.assertEqual(self.assertDone(self.text(self.dir / 'chat.json', '--assistant-mask')), '2\tab\t0\n2\tab\t1\n1\tb\t0\n')
        self.assertFails(self.text(self.dir / 'chat.json', '--assistant-mask', '--generation-prompt'), 2, '--assistant-mask is for --messages')
        self.assertFails(npu_tool('tokenize', '--tokenizer', self.dir, '--assistant-mask', 'a'), 2, '--assistant-mask is for --messages')
        self.assertFails(npu_tool('tokenize', self.dir / 'chat.json', '--to', self.dir / 'out', '--assistant-mask'), 2, 'with --to, name the files of text')
        self.template('{# nothing #}')
        self.assertEqual(json.loads(self.assertDone(self.text(self.dir / 'chat.json', '--assistant-mask', '--json'))), {'ids': [], 'tokens': [], 'text': '', 'assistant_masks': []})

    def test_a_chat_of_a_list_is_named(self):
        self.template("{% for m in messages %}{{ m.content }}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}")
        (self.dir / 'chats.json').write_text('[[{"role": "user", "content": "a"}], [{"role": "tool", "content": "b"}]]')
        for words in ((), ('--assistant-mask',)):
            self.assertFails(self.text(self.dir / 'chats.json', *words), 3, 'chats.json, chat 2: ', 'the template refuses the messages: no tools')

    def test_what_a_template_must_not_have(self):
        for template, problem in (
                ("{% include 'x' %}", "the block 'include' is not supported"), ('{% macro f() %}{% endmacro %}', "the block 'macro'"), ('{{ f() }}', "the function 'f'"),
                ('{{ "a" | sort }}', "the filter 'sort'"), ('{{ 1 is prime }}', "the test 'prime'"), ('{{ "a".__class__() }}', "the method '__class__'"),
                ('{{ messages.append(1) }}', "the method 'append'"), ('{{ 2 ** 3 }}', "'**' is not supported"), ('{{ 1 < 2 < 3 }}', 'chain of comparisons'),
                ('{{ messages }}', 'a list or an object is printed'), ('{{ x.y }}', 'not defined'), ('{{ 1 / 0 }}', 'division by zero'), ('a\n\n{{ 1 + }}', 'line 3'),
                ('{% if x %}', "'endif' is missing"), ('{{ "x }}', 'a text is not closed'), ('{% for x in range(4000) %}{% for y in range(4000) %}{% endfor %}{% endfor %}', 'more than 10 million steps'),
                ("{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", 'more than 64 MiB'), ('{{ ' + '(' * 500 + '1' + ')' * 500 + ' }}', 'nested too deeply'),
                ('{{ ' + '1 + ' * 1000 + '1 }}', 'too many parts'), ('{{ 9000000000 * 9000000000 }}', 'is not a number')):
            with self.subTest(template[:40]): self.assertFails(self.template(template), 3, problem)
        (self.dir / 'tokenizer_config.json').write_text('{}')
        self.assertFails(self.text(self.dir / 'chat.json'), 3, 'there is no chat_template')


if __name__ == '__main__': main()
