#include "testing.hpp"

#include "npu_train/io/state_json.hpp"

#include <cmath>
#include <limits>

using namespace npu_train;
using npu_train::testing::error_of;

TEST_CASE("the values of a state come back bit for bit") {
  std::map<std::string, StateValue> values;
  values["i"] = std::numeric_limits<int64_t>::min();
  values["one"] = 1.0;
  values["third"] = 1.0 / 3;
  values["inf"] = std::numeric_limits<double>::infinity();
  values["text"] = std::string("inf");
  values["bytes"] = std::string("\x00\xff\x80", 3);
  values["utf8"] = std::string("\xe2\x82\xac");
  values["surrogate"] = std::string("\xed\xa0\x80");
  values["cut"] = std::string("\xe2\x82");
  const auto json = parse_json(values_to_json(values).dump(), "x");
  CHECK((values_from_json(json, "x") == values));
  values = {{"nan", std::nan("")}};
  CHECK(std::isnan(std::get<double>(values_from_json(parse_json(values_to_json(values).dump(), "x"), "x").at("nan"))));
  for (const char* bad :
       {"[]", R"({"a": null})", R"({"a": {"bytes": "0"}})", R"({"a": {"bytes": "0g"}})", R"({"a": {"number": "big"}})", R"({"a": {}})"}) {
    CHECK(error_of([&] { values_from_json(parse_json(bad, "x"), "state"); }).kind() == ErrorKind::Checkpoint);
  }
}
