"""Chat templates in the forms of published models, and what transformers makes of them, for chat_test.py: python_chat.py FOLDER

Writes FOLDER/NAME/tokenizer_config.json for each template, FOLDER/chats.json, and FOLDER/expected.json: {NAME: [[text, text with generation prompt] or null if
the template refuses the messages]}."""
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import render_jinja_template

TOKENS = {'bos_token': '<s>', 'eos_token': '</s>', 'pad_token': '<pad>'}
CHATML = '''{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}{{
'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}'''
# Newer ChatML: white space control, slices, tests, a namespace, tools, and a search for the last question.
QWEN3 = '''{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if message.thought is defined and message.thought is not none %}
            {%- set thought = message.thought %}
        {%- elif '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set thought = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and thought)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool>\\n' ~ message.content ~ '\\n</tool>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
'''
LLAMA3 = '''{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim +
'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{
'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}'''
LLAMA31 = '''{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message, if there is one. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at once") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
'''
LLAMA2 = '''{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{%
set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{
raise_exception('roles must alternate: user, assistant') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message +
'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() +
' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}'''
MISTRAL = '''{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set users = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if message == users[-1] and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("only user and assistant, not " + message["role"]) }}
    {%- endif %}
{%- endfor %}
'''
GEMMA = '''{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{%
set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{%
if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}'''
# Unusual forms of the language itself.
ODD = '''{#- a comment -#}
  {% if true %}
    indented
  {% endif %}
{% for key, value in {'a': 1, 'b': [1.5, none]}.items() if key != 'c' %}{{ key }}={{ value | tojson }}{% if not loop.last %}, {% endif %}{% else %}never{% endfor %}

{% for x in [] %}{% else %}empty{% endfor %} {{ range(3) | join('-') }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 1 + 2 * 3 - 4 / 2 }} {{ 'a' ~ 1 ~ true ~ none }} {{ 'x' if false }}|
{%- for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set text %}block of {{ messages | length }}{% endset %}{{ text | upper }} {{ 'abc'[1:] }} {{ 'abc'[-1] }} {{ [1, 2, 3][::-1] | join }} {{ messages | map(attribute='role') | join(',') }}
{{ (missing | default('none given')) }} {{ missing is defined }} {{ '' | default('x', true) }} {{ 'a b'.split()[0] }} {{ "it's" | replace("'", '"') }} {{ 'hello world' | title }}
{%+ if 3 in [1, 3] and not 'z' in 'abc' %} kept {%+ endif %}
{{ {'a': {'b': 'c'}}.a.b }} {{ {'k': 1}.get('z', 9) }} {{ ['a', 'b'] == ['a', 'b'] }} {{ 1 == 1.0 }} {{ 'b' > 'a' }} {{ 5 is odd }} {{ messages[0] is mapping }} {{ 'é' | length }}
{% generation %}assistant{% endgeneration %}
'''
TEMPLATES = {'chatml': CHATML, 'qwen3': QWEN3, 'llama3': LLAMA3, 'llama31': LLAMA31, 'llama2': LLAMA2, 'mistral': MISTRAL, 'gemma': GEMMA, 'odd': ODD}
say = lambda role, content, **more: {'role': role, 'content': content, **more}
CHATS = [
    [say('user', 'Hello')],
    [say('system', ' Be brief. '), say('user', ' What is 2 + 2?\n')],
    [say('user', 'a'), say('assistant', ' b '), say('user', 'c \u00e9 \u4e2d <|im_end|>')],
    [say('system', 'S'), say('user', 'a'), say('assistant', '<think>\nhm\n</think>\n\nb'), say('user', 'c'), say('assistant', 'd', thought='\nwell\n')],
    [say('user', '<tool>x</tool>'), say('assistant', 'b'), say('tool', 'result'), say('tool', '{"x": 1}'), say('assistant', '')],
    [say('user', 'a'), say('assistant', 'b', tool_calls=[{'function': {'name': 'f', 'arguments': {'x': [1, 2.5, True, None, 'y\u00e9"']}}}]), say('ipython', 'z')],
    [say('assistant', 'first'), say('user', 'x')],
]


def rendered(template, chat, prompt):
    try:
        # Renders as apply_chat_template() does.
        return render_jinja_template(conversations=[chat], chat_template=template, add_generation_prompt=prompt, **TOKENS)[0][0]
    except Exception as e:
        print(type(e).__name__, e, file=sys.stderr)
        return None


def main(folder):
    expected = {}
    for name, template in TEMPLATES.items():
        (folder / name).mkdir()
        (folder / name / 'tokenizer_config.json').write_text(json.dumps(TOKENS | {'chat_template': template}))
        expected[name] = [[rendered(template, chat, prompt) for prompt in (False, True)] for chat in CHATS]
    (folder / 'chats.json').write_text(json.dumps(CHATS))
    (folder / 'expected.json').write_text(json.dumps(expected))


if __name__ == '__main__': main(pathlib.Path(sys.argv[1]))
