#include "testing.hpp"

#include "npu_train/core/str_cat.hpp"

#include <sstream>

#include "npu_train/core/log.hpp"
#include "other_locale.hpp"

using namespace npu_train;
using namespace npu_train::testing;

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
