#include "testing.hpp"

#include "npu_train/tools/doctor/version_matrix.hpp"

#include <algorithm>

using namespace npu_train;

TEST_CASE("versions in their order") {
  const std::vector<std::string> ascending = {
      "8.3.T2", "8.3.RC1.alpha003", "8.3.RC1.beta1", "8.3.RC1",  "8.3.RC2", "8.3.0",    "8.5.0.alpha002", "8.5.0",      "8.5.0.post1",
      "8.5.1",  "9.0.0-beta.1",     "9.1.0",         "25.0.RC1", "25.2.0",  "26.0.rc1", "26.0.RC2",       "535.104.05", "535.129.03"};
  for (size_t i = 0; i < ascending.size(); ++i)
    for (size_t k = 0; k < ascending.size(); ++k) {
      INFO(ascending[i], " and ", ascending[k]);
      CHECK((*Version::parse(ascending[i]) < *Version::parse(ascending[k])) == (i < k));
    }
  CHECK(*Version::parse("9.1") == *Version::parse("9.1.0"));
  CHECK(*Version::parse("2.13.0+cpu") == *Version::parse("2.13.0"));
  CHECK(*Version::parse("8.3-RC1") == *Version::parse("8.3.rc1"));
  CHECK(*Version::parse("5.15.0-94-generic") > *Version::parse("4.18"));
  CHECK(*Version::parse("23.0.rc1.b050") == *Version::parse("23.0.rc1"));
}

TEST_CASE("texts that are no versions, and minors") {
  for (const char* text : {"", "abc", "RC1", "-1.0", ".", "v2.1", "99999999999999999999"}) CHECK_MESSAGE(!Version::parse(text), text);
  CHECK(Version::parse("9.1.0")->minor() == "9.1");
  CHECK(Version::parse("26.0.RC1")->minor() == "26.0");
  CHECK(Version::parse("9")->minor() == "9.0");
  CHECK(Version::parse("9.RC1")->minor() == "9.0");
  CHECK(Version::parse(std::string(1000, '1')) == std::nullopt);
}

TEST_CASE("the table: rules that can be read, each minimum not above what is recommended") {
  CHECK(version_matrix_date().size() == 10);
  size_t seen = 0;
  for (const char* what : {"libtorch", "kernel", "cann_for_torch_npu", "driver_for_cann", "driver_for_cuda", "compute_capability_for_cuda"})
    for (const auto& key : version_keys(what)) {
      const auto rule = version_rule(what, key);
      REQUIRE(rule);
      const auto recommended = Version::parse(rule->recommended), minimum = Version::parse(rule->minimum);
      CHECK(recommended);
      if (minimum) CHECK(*minimum <= *recommended);
      ++seen;
    }
  CHECK(seen >= 18);
  CHECK(version_rule("cann_for_torch_npu", "2.11.0")->recommended == "9.1.0");
  CHECK(version_rule("driver_for_cann", "9.1.3")->minimum == "25.2.0");
  CHECK(!version_rule("driver_for_cann", "7.0.0"));
  CHECK(!version_rule("driver_for_cann", "invalid"));
  CHECK(!version_rule("no such rule", "1.0"));
}
