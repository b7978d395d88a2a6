#include "testing.hpp"

#include "npu_train/core/c_locale.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "npu_train/core/text.hpp"
#include "only_if.hpp"
#include "other_locale.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::string half() {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f", 0.5);
  return text;
}

}  // namespace

TEST_CASE("printf and strtod follow the C locale in the scope, in its thread" * only_if(has_german_source(), "there is no locale de_DE")) {
  const GermanNumbers german;
  REQUIRE(half() == "0,5");
  {
    const CLocale scope;
    CHECK(half() == "0.5");
    CHECK(std::strtod("1.5", nullptr) == 1.5);
    std::string elsewhere;
    std::thread([&] { elsewhere = half(); }).join();
    CHECK(elsewhere == "0,5");
  }
  CHECK(half() == "0,5");
}

TEST_CASE("the texts of the library have points" * only_if(has_german_source(), "there is no locale de_DE")) {
  const GermanNumbers german;
  CHECK(printed("%.2f %s", 0.5, "x") == "0.50 x");
  CHECK(human_bytes(1.5 * 1024) == "1.5 KiB");
  CHECK(human_duration(2.5) == "2.5 s");
  CHECK(decimal_number("0.5") == 0.5);
  CHECK(decimal_number("1e-999") == 0.0);
  CHECK_FALSE(decimal_number("0,5"));
}

TEST_CASE("new streams write plain numbers in the scope, and those of the program afterwards") {
  const auto written = [] {
    std::ostringstream out;
    out << 1003 << " " << 0.5;
    return out.str();
  };
  {
    const PlainStreams scope;  // has no effect here
    CHECK(written() == "1003 0.5");
  }
  const OtherLocale other;
  {
    const PlainStreams scope;
    CHECK(written() == "1003 0.5");
  }
  CHECK(written() == "1.0.0.3 0,5");
}
