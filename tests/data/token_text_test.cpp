#include "testing.hpp"

#include "npu_train/data/token_text.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("every text is its bytes, and comes back from them") {
  CHECK(byte_tokens("a\xc3\xa9\n") == std::vector<int64_t>{97, 0xc3, 0xa9, 10});
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(text_of_bytes(byte_tokens(all)) == all);
  CHECK(text_of_bytes({104, kEndOfText, 105}) == "hi");
}

TEST_CASE("a document ends with the end of text; an empty one has no tokens") {
  CHECK(document_tokens("hi", "a.txt") == std::vector<int64_t>{104, 105, kEndOfText});
  CHECK(document_tokens("", "a.txt").empty());
  CHECK(document_bytes("h\xc3", "a.txt") == std::string("h\xc3\0", 3));
}

TEST_CASE("what is not text is an error") {
  const auto binary = error_of([] { document_tokens(std::string("ab\0c", 4), "a.bin"); });
  CHECK(((binary.kind() == ErrorKind::Data)));
  CHECK_MESSAGE(std::string(binary.what()).find("a.bin: byte 2 is 0") != std::string::npos, binary.what());
  const auto token = error_of([] { text_of_bytes({7, 256}); });
  CHECK(((token.kind() == ErrorKind::Data)));
  CHECK_MESSAGE(std::string(token.what()).find("token 1 is 256; allowed: 0 to 255") != std::string::npos, token.what());
}
