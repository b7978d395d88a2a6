#include "testing.hpp"

#include "npu_train/io/file.hpp"
#include "npu_train/text/chat_template.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("settings come from the files of a folder; what is missing is empty") {
  const TempDir dir;
  CHECK(read_text_settings(dir.path()).end_tokens.empty());
  CHECK(read_text_settings(dir.path()).chat_template.empty());
  write_file_atomic(dir / "config.json", R"({"eos_token_id": 7})");
  write_file_atomic(dir / "tokenizer_config.json",
                    R"({"bos_token": null, "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "<p>",
      "chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]})");
  auto settings = read_text_settings(dir / "tokenizer.json");  // a file in the folder, which need not exist
  CHECK(settings.end_tokens == std::vector<int64_t>{7});
  CHECK(settings.begin.empty());
  CHECK(settings.end == "</s>");
  CHECK(settings.padding == "<p>");
  CHECK(settings.chat_template == "b");
  write_file_atomic(dir / "generation_config.json", R"({"eos_token_id": [3, 4]})");
  write_file_atomic(dir / "chat_template.jinja", "c");
  settings = read_text_settings(dir.path());
  CHECK(settings.end_tokens == std::vector<int64_t>{3, 4});
  CHECK(settings.chat_template == "c");
  CHECK(has(settings.file, "chat_template.jinja"));
}

TEST_CASE("settings of another type are an error with their file") {
  const TempDir dir;
  write_file_atomic(dir / "generation_config.json", R"({"eos_token_id": "3"})");
  CHECK(has(error_of([&] { read_text_settings(dir.path()); }).what(), "generation_config.json: eos_token_id"));
  write_file_atomic(dir / "generation_config.json", "{}");
  write_file_atomic(dir / "tokenizer_config.json", R"({"eos_token": 3})");
  CHECK(has(error_of([&] { read_text_settings(dir.path()); }).what(), "tokenizer_config.json: eos_token"));
  write_file_atomic(dir / "tokenizer_config.json", R"({"chat_template": [{"name": "a", "template": "b"}]})");
  CHECK(has(error_of([&] { read_text_settings(dir.path()); }).what(), "none of the templates has the name 'default'"));
}

namespace {

std::string text_of(const std::string& source, const std::string& messages = R"([{"role": "user", "content": "hi"}])",
                    bool prompt = false) {
  return ChatTemplate({.end_tokens = {}, .begin = "<s>", .end = "</s>", .padding = {}, .chat_template = source, .file = "chat"})
      .text(parse_json(messages, "messages"), prompt);
}

// Returns the texts of the answers.
std::vector<std::string> answers_of(const std::string& source, const std::string& messages, Answers which = Answers::All) {
  const ChatTemplate chat({.end_tokens = {}, .begin = "<s>", .end = "</s>", .padding = {}, .chat_template = source, .file = "chat"});
  const auto out = chat.with_answers(parse_json(messages, "messages"), which, "lines, line 7");
  CHECK(out.text == chat.text(parse_json(messages, "messages")));
  std::vector<std::string> texts;
  for (const auto& [begin, end] : out.answers) texts.push_back(out.text.substr(begin, end - begin));
  return texts;
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

TEST_CASE("answers are what generation blocks write") {
  using Texts = std::vector<std::string>;
  const std::string marked =
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %} {{ m.content }}{{ eos_token }}"
      "{%- endgeneration %}{% else %}{{ m.content }}{% endif %}|{% endfor %}";
  const std::string talk = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
    {"role": "assistant", "content": "\u00e9"}, {"role": "user", "content": "d"}])";
  CHECK(answers_of(marked, talk) == Texts{" b</s>", " \xc3\xa9</s>"});
  CHECK(answers_of(marked, R"([{"role": "user", "content": "a"}])").empty());
  CHECK(answers_of(marked, talk, Answers::Last).empty());  // the last message is one of the user
  CHECK(answers_of("{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}d", "[]") == Texts{"abc"});
  const std::string unplaced = "\n{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}";
  CHECK(text_of(unplaced, "[]") == "\na");
  CHECK(has(error_of([&] { answers_of(unplaced, "[]"); }).what(), "chat, line 2: a generation block within a block of 'set'"));
  CHECK(text_of("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", "[]") == "21");
}

TEST_CASE("without generation blocks an answer is what a message adds to the text of the earlier ones") {
  using Texts = std::vector<std::string>;
  const std::string chat =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const std::string talk = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
    {"role": "assistant", "content": ""}, {"role": "assistant", "content": "d"}])";
  CHECK(answers_of(chat, talk) == Texts{"b;", ";", "d;"});
  CHECK(answers_of(chat, talk, Answers::Last) == Texts{"d;"});
  CHECK(answers_of(chat, "[]").empty());
  CHECK(answers_of(chat, "[]", Answers::Last).empty());
  const auto refused = [&](const std::string& source, Answers which, const std::string& words) {
    const auto error = error_of([&] { answers_of(source, talk, which); });
    CHECK(error.kind() == ErrorKind::Data);
    CHECK_MESSAGE(has(error.what(), "lines, line 7: " + words), error.what());
    CHECK(has(error.what(), "{% generation %}") == (which == Answers::All));
  };
  const std::string last_only = "{% for m in messages %}{{ m.content }}{% if loop.last %}!{% endif %}{% endfor %}";
  refused(last_only, Answers::All, "the chat template writes the messages before message 2 differently when that answer is missing");
  refused(last_only, Answers::Last, "the chat template writes the messages before message 5 differently when that answer is missing");
  refused("{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' and loop.last %}!{% endif %}{% endfor %}", Answers::All,
          "the chat template writes message 2, an answer, differently when others follow");
}

TEST_CASE("a chat that begins with an answer needs a template that begins without messages") {
  const std::string talk = R"([{"role": "assistant", "content": "a"}])";
  CHECK(answers_of("{% for m in messages %}{{ m.content }}{% endfor %}", talk) == std::vector<std::string>{"a"});
  const auto error = error_of([&] { answers_of("{{ messages[0].content }}", talk); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK_MESSAGE(has(error.what(), "lines, line 7: message 1 is an answer, and without messages there is no prompt (chat, line 1: "),
                error.what());
}

TEST_CASE("a chat with more than 1,000 answers is refused") {
  const auto talk = [](int answers) {
    std::string out = R"([{"role": "user", "content": "a"})";
    for (int i = 0; i < answers; ++i) out += R"(, {"role": "assistant", "content": "b"})";
    return out + "]";
  };
  const std::string marked =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}b{% endgeneration %}{% endif %}{% endfor %}";
  CHECK(answers_of(marked, talk(1000)).size() == 1000);
  for (const auto& source : {marked, std::string("{% for m in messages %}{{ m.content }}{% endfor %}")}) {
    const auto error = error_of([&] { answers_of(source, talk(1001)); });
    CHECK(error.kind() == ErrorKind::Data);
    CHECK_MESSAGE(has(error.what(), "lines, line 7: the chat has 1001 answers; allowed: at most 1000"), error.what());
  }
}
