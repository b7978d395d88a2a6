#include "testing.hpp"

#include "npu_train/core/hash.hpp"

using namespace npu_train;

TEST_CASE("XXH3 of known texts") {
  CHECK(hash64("") == 0x2d06800538d394c2u);  // XXH3_64bits of an empty input, from its specification
  CHECK(hash64("a") != hash64("b"));
  CHECK(hash64("a", 1, 0) != hash64("a", 1, 1));
  CHECK(hash64(nullptr, 0) == hash64(""));
  CHECK(hex64(0x00ffee0012345678u) == "00ffee0012345678");
}

TEST_CASE("in pieces or at once is the same") {
  std::string text(100'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{257}, size_t{4096}, text.size()}) {
    Hasher hasher;
    for (size_t at = 0; at < text.size(); at += piece) hasher.update(text.data() + at, std::min(piece, text.size() - at));
    CHECK(hasher.digest() == hash64(text));
    Hasher moved = std::move(hasher);
    CHECK(moved.digest() == hash64(text));
  }
  CHECK(Hasher().digest() == hash64(""));
}
