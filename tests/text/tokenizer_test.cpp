#include "testing.hpp"

#include "npu_train/text/tokenizer.hpp"

#include <functional>
#include <vector>

#include "bounded.hpp"
#include "npu_train/io/json.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns the document of a small BPE tokenizer.
Json simple() {
  return parse_json(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
              "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, " ": 2, "ab": 3, "abab": 4}, "merges": ["a b", ["ab", "ab"]]}})",
                    "simple");
}

using Path = std::vector<std::string>;

// Returns the document with `value` at `path`. Numbers in the path are indices into lists.
Json changed(const Json& json, const Path& path, Json value, size_t depth = 0) {
  if (depth == path.size()) return value;
  if (json.is_array()) {
    auto items = json.items("test");
    auto& item = items.at(std::stoul(path[depth]));
    item = changed(item, path, std::move(value), depth + 1);
    return Json::array(std::move(items));
  }
  auto out = json;
  const auto* member = json.find(path[depth]);
  return out.set(path[depth], changed(member == nullptr ? Json() : *member, path, std::move(value), depth + 1));
}

Json changed(const Path& path, const std::string& value) { return changed(simple(), path, parse_json(value, "value")); }

std::string refusal(const Json& json) {
  const auto error = error_of([&] { Tokenizer::parse(json.dump(), "t.json"); });
  CHECK(error.kind() == ErrorKind::Data);
  return error.what();
}

std::string refusal(const Path& path, const std::string& value) { return refusal(changed(path, value)); }

using Ids = std::vector<int64_t>;

}  // namespace

TEST_CASE("merges apply in their order, and added tokens are found first") {
  const auto tokenizer = Tokenizer::parse(simple().dump(), "t.json");
  CHECK(tokenizer.encode("aababb ab<s>ba").ids == Ids{0, 4, 1, 2, 3, 5, 1, 0});
  CHECK(tokenizer.decode({0, 4, 5, 2}) == "aabab ");
  CHECK(tokenizer.decode({0, 4, 5, 2}, /*skip_special_tokens=*/false) == "aabab<s> ");
  CHECK(tokenizer.decode({0, 77, -1, 1}) == "ab");
  CHECK(tokenizer.encode("").ids.empty());
  CHECK(tokenizer.id("abab") == 4);
  CHECK(tokenizer.id("<s>") == 5);
  CHECK(!tokenizer.id("ba"));
  CHECK(tokenizer.token(3) == "ab");
  CHECK(!tokenizer.token(6));
  CHECK(tokenizer.is_special(5));
  CHECK(!tokenizer.is_special(4));
  CHECK(tokenizer.vocabulary_size() == 6);
}

TEST_CASE("a long word has the tokens of a short one, many times") {
  const auto tokenizer = Tokenizer::parse(simple().dump(), "t.json");
  std::string text;
  Ids expected;
  for (int i = 0; i < 50'000; ++i) {
    text += "ababa";
    expected.insert(expected.end(), {4, 0});
  }
  CHECK(tokenizer.encode(text).ids == expected);
}

TEST_CASE("a text without words is divided only where no merge crosses") {
  // "a" and a space are one token here, so the text must not be split before spaces.
  const auto with_merge = [](const std::string& merge) {
    auto json = changed({"model", "vocab"}, R"({"a": 0, "b": 1, "\u2581": 2, "a\u2581": 3, "\u2581b": 4, "\u2581\u2581": 6})");
    json = changed(json, {"model", "merges"}, Json::array({merge, "\u2581 \u2581", "\u2581 b"}));
    return Tokenizer::parse(json.dump(), "t.json");
  };
  std::string text;
  Ids crossing, others;
  for (int i = 0; i < 100; ++i) {
    text += "a\u2581b\u2581\u2581";
    crossing.insert(crossing.end(), {3, 1, 6});
    others.insert(others.end(), {0, 4, 3});
  }
  CHECK(with_merge("a \u2581").encode(text).ids == crossing);
  auto json = changed({"model", "vocab"}, R"({"a": 0, "b": 1, "\u2581": 2, "\u2581b": 4, "\u2581\u2581": 3})");
  json = changed(json, {"model", "merges"}, Json::array({"\u2581 \u2581", "\u2581 b"}));
  CHECK(Tokenizer::parse(json.dump(), "t.json").encode(text).ids == others);
}

TEST_CASE("two texts have a template of their own") {
  const auto json = changed({"post_processor"},
                            R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}})");
  const auto tokenizer = Tokenizer::parse(json.dump(), "t.json");
  CHECK(tokenizer.encode("b").ids == Ids{5, 1});
  CHECK(tokenizer.encode("b", /*special_tokens=*/false).ids == Ids{1});
  const auto both = tokenizer.encode_pair("b", "ab");
  CHECK(both.ids == Ids{3, 5, 1});
  CHECK(both.types == Ids{1, 1, 0});
  CHECK(tokenizer.encode_pair("b", "ab", /*special_tokens=*/false).ids == Ids{1, 3});
  CHECK(has(refusal(changed(json, {"post_processor", "special_tokens", "<s>", "ids"}, Json::array({4}))), "'<s>' is not the token 4"));
}

TEST_CASE("a stream returns only complete characters") {
  auto json = changed({"decoder"}, R"({"type": "ByteFallback"})");
  json = changed(json, {"model", "byte_fallback"}, true);
  json = changed(json, {"model", "vocab"}, parse_json(R"({"a": 0, "b": 1, "<0xC3>": 2, "<0xA9>": 3})", "vocab"));
  json = changed(json, {"model", "merges"}, Json::array());
  json = changed(json, {"added_tokens"}, Json::array());
  const auto tokenizer = Tokenizer::parse(json.dump(), "t.json");
  TextStream stream([&](const Ids& ids) { return tokenizer.decode(ids); });
  CHECK(stream.next(0) == "a");
  CHECK(stream.next(2).empty());
  CHECK(stream.next(3) == "\xc3\xa9");
  CHECK(stream.next(1) == "b");
  CHECK(stream.next(2).empty());
  CHECK(stream.rest() == "\xef\xbf\xbd");
  CHECK(stream.rest().empty());
}

TEST_CASE("what is not supported is named, with its place") {
  CHECK(has(refusal({"version"}, "\"2.0\""), "version is '2.0'"));
  CHECK(has(refusal({"more"}, "1"), "the member 'more' is not supported"));
  CHECK(has(refusal({"model", "more"}, "1"), "model: the member 'more' is not supported"));
  CHECK(has(refusal({"model", "type"}, "\"Magic\""),
            "model: the type 'Magic' is not supported; allowed: BPE, Unigram, WordLevel, WordPiece"));
  CHECK(has(refusal({"model", "dropout"}, "0.1"), "model.dropout is 0.1"));
  CHECK(has(refusal({"normalizer"}, R"({"type": "Nmt"})"), "normalizer: the type 'Nmt'"));
  CHECK(has(refusal({"normalizer"}, R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})"),
            "normalizer.normalizers[1]: the type 'Nmt'"));
  CHECK(has(refusal({"pre_tokenizer"}, R"({"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})"),
            "pre_tokenizer.pretokenizers[0]: the type 'UnicodeScripts'"));
  CHECK(has(refusal({"pre_tokenizer"}, R"({"type": "Punctuation", "behavior": "Doubled"})"), "Doubled"));
  CHECK(has(refusal({"post_processor"}, R"({"type": "Other"})"), "post_processor: the type 'Other'"));
  CHECK(has(refusal({"decoder"}, R"({"type": "CTC"})"), "decoder: the type 'CTC'"));
}

TEST_CASE("a pattern with another meaning in another library is refused") {
  const auto pattern = [](const std::string& regex) {
    return changed(
        simple(), {"pre_tokenizer"},
        Json::object({{"type", "Split"}, {"pattern", Json::object({{"Regex", regex}})}, {"behavior", "Isolated"}, {"invert", false}}));
  };
  for (const char* regex : {"\\h",        "a{,3}", "a{2}+", "a{2}?", "[a[b]]", "[a&&b]",      "(?<name>a)", "(?m:a)", "a(?i)b", "\\b",
                            "\\p{Alpha}", "\\1",   "[]a]",  "a**",   "\\xff",  "[[:alpha:]]", "(?#a)",      "\\pL",   "\\k<a>", "[\\W]"}) {
    CAPTURE(regex);
    CHECK(has(refusal(pattern(regex)), "is not supported"));
  }
  for (const char* regex : {"(a", "a)", "[b-a]", "(?<=a*)b"}) {
    CAPTURE(regex);
    CHECK(has(refusal(pattern(regex)), "pre_tokenizer.pattern"));
  }
  const auto with = [&](const std::string& regex) { return Tokenizer::parse(pattern(regex).dump(), "t.json"); };
  CHECK(with("\\s").encode("a\x20\x62").ids == Ids{0, 2, 1});
  // Without the limit on steps, the pattern would try all divisions of the text.
  const auto bomb = with("(a+)+$|(a|b|ab)*c");
  const auto error = error_of([&] { bomb.encode(std::string(60, 'a') + "b"); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "pre_tokenizer.pattern: the pattern fails at byte 0"));
}

TEST_CASE("a damaged file is an error, whatever it says") {
  CHECK(has(refusal({"model", "vocab", "a"}, "3"), "have the same id 3"));
  CHECK(has(refusal({"model", "vocab", "a"}, "-1"), "has the id -1; allowed: 0 to"));
  CHECK(has(refusal({"model", "vocab", "a"}, "4000000000"), "has the id 4000000000"));
  CHECK(has(refusal({"model", "vocab", "a"}, "\"0\""), "the id of 'a' is not an integer"));
  CHECK(has(refusal({"model", "vocab"}, "[]"), "model.vocab: an array"));
  CHECK(has(refusal({"model", "merges", "0"}, "\"a\""), "merges[0]: 'a'; allowed: two tokens"));
  CHECK(has(refusal({"model", "merges", "0"}, "\"a c\""), "merges[0]: 'c' is not in the vocabulary"));
  CHECK(has(refusal({"model", "merges", "0"}, "\"b a\""), "merges[0]: 'ba' is not in the vocabulary"));
  CHECK(has(refusal({"model", "merges", "1"}, "\"a b\""), "merges[1]: 'a' and 'b' are merged twice"));
  CHECK(has(refusal({"model", "merges", "1"}, "[\"a\"]"), "merges[1]: 1 values"));
  CHECK(has(refusal({"model", "unk_token"}, "\"?\""), "unk_token: '?' is not in the vocabulary"));
  CHECK(has(refusal({"model", "ignore_merges"}, "1"), "ignore_merges"));
  CHECK(has(refusal({"added_tokens", "0", "id"}, "3"), "another token with it"));
  CHECK(has(refusal({"added_tokens", "0", "content"}, "\"a\""), "'a' has the id 5"));
  CHECK(has(refusal({"added_tokens", "0", "content"}, "\"\""), "the content has 0 bytes"));
  CHECK(has(refusal({"added_tokens", "0", "id"}, "4000000000"), "added_tokens[0].id is 4000000000"));
  CHECK(has(refusal({"decoder"}, "[]"), "decoder: an array"));
  CHECK(has(refusal(changed(simple(), {"model", "vocab", std::string(20'000, 'x')}, 7)), "the token 7 has 20000 bytes"));
  // The vocabulary has an empty token, which would be merged with others without end.
  auto empty = changed({"model", "vocab", ""}, "7");
  CHECK(has(refusal(changed(empty, {"model", "merges", "0"}, Json::array({"", "a"}))), "merged with nothing"));
}

TEST_CASE("steps that multiply a text do not fill the memory") {
  const auto doubled = parse_json(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})", "step");
  const auto sequence = [&](size_t count, const Json& step) {
    return Json::object({{"type", "Sequence"}, {"normalizers", Json::array(std::vector<Json>(count, step))}});
  };
  CHECK(Tokenizer::parse(changed(simple(), {"normalizer"}, sequence(3, doubled)).dump(), "t.json").encode("a").ids == Ids(8, 0));
  const auto large =
      Json::object({{"type", "Replace"}, {"pattern", Json::object({{"String", "a"}})}, {"content", std::string(size_t{1} << 20, 'b')}});
  const auto bomb = Tokenizer::parse(changed(simple(), {"normalizer"}, large).dump(), "t.json");
  CHECK(has(error_of([&] { bomb.encode(std::string(300, 'a')); }).what(), "more than 268435456 bytes"));
  CHECK(has(refusal(changed(simple(), {"normalizer"}, sequence(65, doubled))), "normalizers: 65 steps; allowed: at most 64"));
  CHECK(has(refusal(changed(simple(), {"normalizer"}, sequence(2, sequence(2, sequence(2, doubled))))), "sequences in sequences"));
}

TEST_CASE("bytes that are not UTF-8 are an error in a file and in a text") {
  const auto error = error_of([] { Tokenizer::parse("{\"version\": \"\xff\"}", "t.json"); });
  CHECK(error.kind() == ErrorKind::Data);
  const auto tokenizer = Tokenizer::parse(simple().dump(), "t.json");
  for (const char* text : {"ab\x80", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"}) {
    CAPTURE(text);
    const auto bad = error_of([&] { tokenizer.encode(text); });
    CHECK(bad.kind() == ErrorKind::Data);
    CHECK(has(bad.what(), "is not UTF-8"));
  }
}

TEST_CASE("scores, templates and affixes of the other models are checked") {
  const auto unigram =
      changed({"model"}, R"({"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["<unk>", 0], ["a", -1.5], ["aa", -1]]})");
  const auto tokenizer = Tokenizer::parse(unigram.dump(), "t.json");
  CHECK(tokenizer.encode("aaaxyza").ids.size() == 4);
  CHECK(has(refusal(changed(unigram, {"model", "unk_id"}, 3)), "unk_id is 3; allowed: 0 to 2"));
  CHECK(has(refusal(changed(unigram, {"model", "vocab", "1", "1"}, "nan")), "vocab[1]: the score is not a finite number"));
  CHECK(has(refusal(changed(unigram, {"model", "vocab", "1"}, Json::array({"a"}))), "vocab[1]: 1 values"));
  CHECK(has(refusal(changed(unigram, {"model", "vocab", "1", "0"}, "aa")), "has the ids 1 and 2"));
  const auto no_unknown = Tokenizer::parse(changed(unigram, {"model", "unk_id"}, Json()).dump(), "t.json");
  CHECK(has(error_of([&] { no_unknown.encode("ax"); }).what(), "no token for 'x', and no unk_id"));
}

TEST_CASE("a large file of long tokens takes memory for its bytes") {
  auto vocab = Json::object();
  for (int i = 0; i < 100; ++i) vocab.push_member(std::to_string(i) + std::string(16'000, 'x'), i + 10);
  const auto text = changed(simple(), {"model"},
                            Json::object({{"type", "WordPiece"},
                                          {"unk_token", "?"},
                                          {"continuing_subword_prefix", ""},
                                          {"max_input_chars_per_word", 100},
                                          {"vocab", vocab}}))
                        .dump();
  CHECK(runs_within(256, [&] { Tokenizer::parse(text, "t.json"); }));
}
