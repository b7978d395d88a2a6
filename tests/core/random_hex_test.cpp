#include "testing.hpp"

#include "npu_train/core/random_hex.hpp"

#include <set>

using namespace npu_train;

TEST_CASE("random digits are hexadecimal, as many as requested, and never the same") {
  std::set<std::string> drawn;
  for (int i = 0; i < 100; ++i) {
    const auto text = random_hex(16);
    CHECK(text.size() == 32);
    CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
    drawn.insert(text);
  }
  CHECK(drawn.size() == 100);
  CHECK(random_hex(0).empty());
  CHECK(random_hex(256).size() == 512);
}
