#include "testing.hpp"

#include "npu_train/text/text_settings.hpp"

#include "npu_train/io/file.hpp"

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
