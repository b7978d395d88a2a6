#include "testing.hpp"

#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/text/tokenizer.hpp"
#include "sentencepiece_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns a tokenizer of single characters that applies the normalizer first.
Tokenizer precompiled(const Json& normalizer) {
  auto vocab = Json::object();
  const std::vector<std::string> characters{"a", "b", "c", "d", " ", "\u0301", "\r", "\n", "\u0e33", "x", "\u0308", "\u1100", "\u1161"};
  for (size_t i = 0; i < characters.size(); ++i) vocab.push_member(characters[i], static_cast<int64_t>(i));
  const auto model = Json::object({{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}});
  const auto document =
      Json::object({{"version", "1.0"}, {"normalizer", normalizer}, {"model", model}, {"decoder", Json::object({{"type", "Fuse"}})}});
  return Tokenizer::parse(document.dump(), "t.json");
}

Json normalizer_of(const std::string& bytes) { return Json::object({{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(bytes)}}); }

std::string normalized(const Tokenizer& tokenizer, const std::string& text) { return tokenizer.decode(tokenizer.encode(text).ids); }

std::string refusal_of_map(const Json& normalizer) {
  const auto error = error_of([&] { precompiled(normalizer); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "t.json: normalizer"));
  return error.what();
}

}  // namespace

TEST_CASE("characters are replaced as a map says, also by nothing and by several") {
  const auto tokenizer = precompiled(normalizer_of(charsmap_of({{"A", "a"}, {"B", ""}, {"\u00e4", "ab"}, {"\t", " "}})));
  CHECK(normalized(tokenizer, "AbBA\u00e4\tc") == "abaab c");
  CHECK(normalized(tokenizer, "").empty());
  CHECK(normalized(tokenizer, "BBB").empty());
  // A zero byte ends the search.
  CHECK(normalized(tokenizer, std::string("A\0A", 3)) == "aa");
}

TEST_CASE("a grapheme of fewer than 6 bytes is replaced as a whole, by what replaces its shortest beginning") {
  const auto map = charsmap_of({{"c", "d"}, {"c\u0301", "x"}, {"a\u0301", "b"}, {"\r", " "}, {"\n", " "}, {"\u1100", "c"}});
  const auto tokenizer = precompiled(normalizer_of(map));
  CHECK(normalized(tokenizer, "a\u0301") == "b");
  CHECK(normalized(tokenizer, "ca") == "da");
  CHECK(normalized(tokenizer, "c\u0301a") == "da");           // not "x": "c" is shorter
  CHECK(normalized(tokenizer, "\r\n") == " ");                // one grapheme
  CHECK(normalized(tokenizer, "\n\r") == "  ");               // two graphemes
  CHECK(normalized(tokenizer, "\u1100\u1161") == "c\u1161");  // 6 bytes: one character after the other
  CHECK(normalized(tokenizer, "a\u0308\u0308") == "a\u0308\u0308");
}

TEST_CASE("a map that is damaged is an error, and never leads out of it") {
  const auto units = units_of({{"A", 0}, {"AB", 2}});
  const std::string texts("a\0b\0", 4);
  CHECK(normalized(precompiled(normalizer_of(charsmap_of_units(units, texts))), "AcAB") == "aca");
  CHECK(has(refusal_of_map(Json::object({{"type", "Precompiled"}, {"precompiled_charsmap", "AAA"}})), "is not base64"));
  CHECK(has(refusal_of_map(Json::object({{"type", "Precompiled"}, {"precompiled_charsmap", "AA*A"}})), "is not base64"));
  CHECK(has(refusal_of_map(Json::object({{"type", "Precompiled"}, {"precompiled_charsmap", "AAB="}})), "is not base64"));
  CHECK(has(refusal_of_map(Json::object({{"type", "Precompiled"}, {"precompiled_charsmap", 3}})), "precompiled_charsmap"));
  CHECK(has(refusal_of_map(Json::object({{"type", "Precompiled"}})), "precompiled_charsmap"));
  CHECK(has(refusal_of_map(Json::object({{"type", "Precompiled"}, {"precompiled_charsmap", ""}})), "0 bytes"));
  CHECK(has(refusal_of_map(normalizer_of("abc")), "3 bytes; allowed: at least 4"));
  CHECK(has(refusal_of_map(normalizer_of(little_endian_bytes(0))), "a trie of 0 bytes"));
  CHECK(has(refusal_of_map(normalizer_of(little_endian_bytes(6) + "12345678")), "a trie of 6 bytes in 8 bytes"));
  CHECK(has(refusal_of_map(normalizer_of(little_endian_bytes(0xFFFFFFFC) + "1234")), "a trie of 4294967292 bytes in 4 bytes"));
  CHECK(has(refusal_of_map(normalizer_of(charsmap_of_units(units, "a\xff"))), "byte 1 of the replacements is not UTF-8"));
  CHECK(has(refusal_of_map(normalizer_of(charsmap_of_units(units, "a"))), "of the trie has no replacement"));
  CHECK(has(refusal_of_map(normalizer_of(charsmap_of_units(units_of({{"A", 1}}), "\u00e4"))), "of the trie has no replacement"));
  const auto truncated = std::vector<uint32_t>(units.begin(), units.begin() + 600);  // without the values
  CHECK(has(refusal_of_map(normalizer_of(charsmap_of_units(truncated, texts))), "of the trie has no replacement"));
}

TEST_CASE("a trie with cycles or with places outside of it ends the search") {
  // Each unit is a child of itself: the byte 'a' leads to 'a' again.
  std::vector<uint32_t> cycle(256);
  cycle['a'] = 'a' | ('a' << 10);
  const auto looping = precompiled(normalizer_of(charsmap_of_units(cycle, "b")));
  CHECK(normalized(looping, "aaab") == "aaab");
  std::vector<uint32_t> outside(256);
  outside['a'] = 'a' | (0x1FFFFFU << 10);
  CHECK(normalized(precompiled(normalizer_of(charsmap_of_units(outside, "b"))), "a\u0301b") == "a\u0301b");
  CHECK(normalized(precompiled(normalizer_of(charsmap_of_units({0xFFFFFFFFU}, "b"))), "aab") == "aab");
}

TEST_CASE("replacements that multiply a text do not fill the memory") {
  const auto bomb = precompiled(normalizer_of(charsmap_of({{"a", std::string(size_t{1} << 20, 'b')}})));
  CHECK(has(error_of([&] { bomb.encode(std::string(300, 'a')); }).what(), "more than 268435456 bytes"));
}
