#include "testing.hpp"

#include <cmath>
#include <limits>
#include <sstream>

#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "other_locale.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the nearest name is the one that was meant, or none") {
  const std::vector<std::string> names = {"max_epochs", "max_steps", "batch_size", "lr", "momentum"};
  struct Row {
    const char* given;
    const char* nearest;
  };
  for (const auto& row : {Row{"max_epoch", "max_epochs"}, Row{"Max-Epochs", "max_epochs"}, Row{"max_setps", "max_steps"},
                          Row{"momentun", "momentum"}, Row{"rl", "lr"}, Row{"scheduler", ""}, Row{"x", ""}, Row{"", ""}}) {
    CAPTURE(row.given);
    CHECK(nearest_name(row.given, names) == row.nearest);
  }
  CHECK(nearest_name(std::string(100'000, 'a'), names).empty());
}

TEST_CASE("numbers for people") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(1234567) == "1,234,567");
  CHECK(with_commas(-1000) == "-1,000");
  CHECK(with_commas(-100) == "-100");
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(3.1 * 1024 * 1024 * 1024) == "3.1 GiB");
  CHECK(human_bytes(1024.0 * 1024 - 1) == "1.0 MiB");
  CHECK(human_duration(0.25) == "250 ms");
  CHECK(human_duration(41) == "41 s");
  CHECK(human_duration(59.9) == "1 min 00 s");
  CHECK(human_duration(2 * 3600 + 3 * 60) == "2 h 03 min");
  CHECK(human_duration(std::numeric_limits<double>::infinity()) == "unknown time");
  CHECK(join({"a", "b"}) == "a, b");
  CHECK(join({}).empty());
  CHECK(to_lower("AbC-1") == "abc-1");
}

TEST_CASE("the shortest text reads back as the same double") {
  for (const double value : {0.1, 1e-5, 1.0 / 3, 1e300, -0.0, 65536.0}) {
    CHECK(std::stod(shortest(value) + " ") == value);
    CHECK(shortest(value).size() <= 24);
  }
  CHECK(shortest(0.1) == "0.1");
  CHECK(shortest(1e-5) == "1e-05");
  CHECK(shortest(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(shortest(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("sizes in bytes") {
  CHECK(parse_bytes("2GiB") == int64_t{2} << 30);
  CHECK(parse_bytes("1.5 MB") == 1500000);
  CHECK(parse_bytes("0B") == 0);
  CHECK(parse_bytes("3TiB") == int64_t{3} << 40);
  for (const char* bad : {"", "2", "GiB", "-1MiB", "2Gi", "2gib", "1e30GiB", "nanB", "infB", "2GiB ", "2  GiB"})
    CHECK_FALSE(parse_bytes(bad).has_value());
}

TEST_CASE("the names that resemble the given one come first") {
  const std::vector<std::string> names = {"alpha", "resnet101", "resnet18", "resnet50", "vit"};
  CHECK(nearest_first("resnet5", names) == std::vector<std::string>{"resnet50", "resnet18", "alpha", "resnet101", "vit"});
  CHECK(nearest_first("zzz", names) == names);
  CHECK(nearest_first("x", {}).empty());
}

TEST_CASE("a text that is a number, and others") {
  CHECK(decimal_number("0.5") == 0.5);
  CHECK(decimal_number("+1e-3") == 1e-3);
  CHECK(decimal_number("-2") == -2.0);
  CHECK(decimal_number("inf") == std::numeric_limits<double>::infinity());
  CHECK(decimal_number("-Infinity") == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(decimal_number("nan").value()));
  CHECK(decimal_number("1e999") == std::numeric_limits<double>::infinity());
  CHECK(decimal_number("-1e999") == -std::numeric_limits<double>::infinity());
  CHECK(decimal_number("1e-999") == 0.0);
  for (const char* other : {"", " 1", "1 ", "12a", "0,5", "+-1", "--1", "+", "-", "1.2.3"}) {
    CAPTURE(other);
    CHECK_FALSE(decimal_number(other));
  }
}

TEST_CASE("printf into a text of any length") {
  CHECK(printed("%s", "") == "");
  CHECK(printed("%02d:%.3g", 7, 0.12345) == "07:0.123");
  CHECK(printed("%s|", std::string(5000, 'a').c_str()) == std::string(5000, 'a') + "|");
}

TEST_CASE("no locale of the program changes a text") {
  const OtherLocale other;
  std::ostringstream of_program;
  of_program << 1003 << " " << 0.5;
  REQUIRE(of_program.str() == "1.0.0.3 0,5");
  CHECK(str_cat("rank ", 1003, " of ", 0.5, ' ', std::string("x")) == "rank 1003 of 0.5 x");
  CHECK(std::string(error_of([] { check(false, ErrorKind::Data, "test", 30729999, " bytes"); }).what()) == "[test] 30729999 bytes");
  std::string logged;
  const ScopedLogSink sink([&](LogLevel, std::string_view message) { logged += message; });
  log_info(1795, " ", 1.25);
  CHECK(logged == "1795 1.25");
}

TEST_CASE("an empty list of parts is an empty text") { CHECK(str_cat().empty()); }
