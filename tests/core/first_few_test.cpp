#include "testing.hpp"

#include "npu_train/core/first_few.hpp"

#include <algorithm>

using namespace npu_train;

TEST_CASE("a list that is cut says how many more there are") {
  std::vector<std::string> names;
  for (size_t n = 0; n <= 12; ++n) {
    const auto text = detail::first_few(names, 5);
    size_t shown = 0, more = 0;
    for (const auto& name : names) shown += text.find(name) != std::string::npos;
    if (const auto at = text.find(", and "); at != std::string::npos) more = std::stoul(text.substr(at + 6));
    CHECK(shown == std::min<size_t>(n, 5));
    CHECK(shown + more == n);
    CHECK((more > 0) == (n > 5));
    names.push_back("<" + std::to_string(n) + ">");
  }
}
