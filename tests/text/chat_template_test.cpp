#include "testing.hpp"

#include "npu_train/text/chat_template.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::string text_of(const std::string& source, const std::string& messages = R"([{"role": "user", "content": "hi"}])",
                    bool prompt = false) {
  return ChatTemplate({.end_tokens = {}, .begin = "<s>", .end = "</s>", .padding = {}, .chat_template = source, .file = "chat"})
      .text(parse_json(messages, "messages"), prompt);
}

std::string refusal_of(const std::string& source, const std::string& messages = "[]") {
  const auto error = error_of([&] { text_of(source, messages); });
  CHECK(error.kind() == ErrorKind::Data);
  return error.what();
}

}  // namespace

TEST_CASE("messages, special tokens and the beginning of an answer") {
  const std::string chat =
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m['content'] | trim }}{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  CHECK(text_of(chat) == "<s>[user] hi</s>");
  CHECK(text_of(chat, R"([{"role": "user", "content": " a "}, {"role": "assistant", "content": "b\n"}])", true) ==
        "<s>[user] a</s>[assistant] b</s>[assistant]");
  CHECK(text_of("{{ pad_token is defined }} {{ tools is none }}") == "False True");
  CHECK(text_of("{{ messages | length }}", "[]") == "0");
}

TEST_CASE("a variable of a loop ends with it, and a namespace remains") {
  CHECK(
      text_of(
          "{% set x = 1 %}{% set n = namespace(x=1) %}{% for i in [5, 6] %}{% set x = i %}{% set n.x = i %}{% endfor %}{{ x }}{{ n.x }}") ==
      "16");
}

TEST_CASE("white space around blocks is removed as transformers does it") {
  CHECK(text_of("a\n  {% if true %}\n b\n  {% endif %}\nc\n") == "a\n b\nc");
  CHECK(text_of("a \n {%- if true -%} \n b {{- ' c ' -}} \n d{% endif %}") == "ab c d");
  CHECK(text_of("a {# x #}\nb\n{{ 1 }}\nc") == "a b\n1\nc");
}

TEST_CASE("errors name the line") {
  CHECK(has(refusal_of("\n\n{{ raise_exception('no ' ~ 'way') }}"), "chat, line 3: the template refuses the messages: no way"));
  CHECK(has(refusal_of("\n{% call f() %}"), "chat, line 2: the block 'call' is not supported"));
  CHECK(has(refusal_of("{{ messages[0].role }}"), "not defined"));
  CHECK(has(refusal_of("x", R"([{"content": "x"}])"), "'role' is missing"));
  CHECK(has(refusal_of("x", "{}"), "messages: an object"));
  CHECK(has(error_of([] { ChatTemplate({}); }).what(), "there is no chat_template"));
}
