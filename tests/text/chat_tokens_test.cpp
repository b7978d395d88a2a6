#include "testing.hpp"

#include "npu_train/text/chat_tokens.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using Spans = std::vector<std::pair<int64_t, int64_t>>;
using Numbers = std::vector<int64_t>;

// Returns a tokenizer of single characters, in which "ab" is one token.
Tokenizer of_characters(const std::string& normalizer = "null") {
  return Tokenizer::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
              "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "\u2581": 2, "ab": 3, " ": 4}, "merges": ["a b"]}, "normalizer": )" +
                              normalizer + "}",
                          "characters");
}

constexpr const char* kBeginsWithSpace = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
  {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})";

}  // namespace

TEST_CASE("answers begin and end between tokens of the complete text") {
  const auto chat = npu_train::detail::tokens_of_chat(of_characters(), {"ab<s>ba<s>abb", {{5, 10}, {12, 13}}});
  CHECK(chat.ids == Numbers{3, 5, 1, 0, 5, 3, 1});
  CHECK(chat.answers == Spans{{2, 5}, {6, 7}});
  CHECK_FALSE(chat.divided);
  const auto empty = npu_train::detail::tokens_of_chat(of_characters(), {"ab", {{2, 2}}});
  CHECK(empty.ids == Numbers{3});
  CHECK(empty.answers == Spans{{1, 1}});
  const auto none = npu_train::detail::tokens_of_chat(of_characters(), {"aab", {}});
  CHECK(none.ids == Numbers{0, 3});
  CHECK(none.answers.empty());
}

TEST_CASE("a token that would cross the beginning or the end of an answer is divided there") {
  const auto begin = npu_train::detail::tokens_of_chat(of_characters(), {"aab", {{2, 3}}});
  CHECK(begin.ids == Numbers{0, 0, 1});
  CHECK(begin.answers == Spans{{2, 3}});
  CHECK(begin.divided);
  const auto end = npu_train::detail::tokens_of_chat(of_characters(), {"<s>ab", {{3, 4}}});
  CHECK(end.ids == Numbers{5, 0, 1});
  CHECK(end.answers == Spans{{1, 2}});
  CHECK(end.divided);
}

TEST_CASE("a normalizer that removes text across the end of an answer divides the text, and no answer ends before it begins") {
  const auto tokenizer = of_characters(R"({"type": "Replace", "pattern": {"String": "ba "}, "content": ""})");
  const auto chat = npu_train::detail::tokens_of_chat(tokenizer, {"ba baa", {{2, 3}}});
  CHECK(chat.ids == Numbers{1, 0, 4, 1, 0, 0});
  CHECK(chat.answers == Spans{{2, 3}});
  CHECK(chat.divided);
}

TEST_CASE("a tokenizer that begins each text with a space does not begin an answer with one") {
  const auto tokenizer = of_characters(kBeginsWithSpace);
  const auto chat = npu_train::detail::tokens_of_chat(tokenizer, {"a ba b", {{1, 3}, {4, 6}}});
  CHECK(chat.ids == Numbers{2, 0, 2, 1, 0, 2, 1});
  CHECK(chat.answers == Spans{{2, 4}, {5, 7}});
  CHECK_FALSE(chat.divided);
}

TEST_CASE("a text is divided only at the borders that a token would cross") {
  const auto chat = npu_train::detail::tokens_of_chat(of_characters(kBeginsWithSpace), {"a ab b", {{1, 3}, {4, 6}}});
  CHECK(chat.ids == Numbers{2, 0, 2, 0, 2, 1, 2, 1});  // the part behind the first answer begins with a space of its own
  CHECK(chat.answers == Spans{{2, 4}, {6, 8}});
  CHECK(chat.divided);
}
