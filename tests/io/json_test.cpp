#include "testing.hpp"

#include "npu_train/io/json.hpp"

#include <cmath>
#include <limits>
#include <random>

#include "npu_train/io/file.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::TempDir;

TEST_CASE("documents are written and read back in order and with their types") {
  auto doc = Json::object();
  doc.set("z", 1).set("a", 1.0).set("text", "x\"\n\xc3\xa9").set("flag", true).set("none", Json());
  doc.set("list", Json::array({1, "two", Json::array(), Json::object()}));
  doc.set("z", int64_t{9007199254740993});
  const auto text = doc.dump(0);
  CHECK(text ==
        "{\"z\": 9007199254740993, \"a\": 1.0, \"text\": \"x\\\"\\n\xc3\xa9\", \"flag\": true, \"none\": null, \"list\": [1, \"two\", [], "
        "{}]}");
  for (const int indent : {0, 2}) {
    const auto again = parse_json(doc.dump(indent), "x");
    CHECK(again.dump(0) == text);
    CHECK(again.at("z", "x").integer("z") == 9007199254740993);
    CHECK(again.at("a", "x").kind() == Json::Kind::Number);
    CHECK(again.at("z", "x").number("z") == 9007199254740992.0);
  }
  CHECK(doc.dump().starts_with("{\n  \"z\": 9007199254740993,\n  \"a\": 1.0,"));
}

TEST_CASE("numbers survive, not finite ones too") {
  for (const double value : {0.1, -0.0, 1e-320, 1.7976931348623157e308, 3.0, std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
    const auto again = parse_json(Json(value).dump(), "x").number("x");
    CHECK(again == value);
    CHECK(std::signbit(again) == std::signbit(value));
  }
  CHECK(std::isnan(parse_json(Json(std::nan("")).dump(), "x").number("x")));
}

TEST_CASE("wrong types and missing keys name the place") {
  const auto doc = parse_json(R"({"a": "text", "b": 1.5})", "x");
  CHECK(std::string(error_of([&] { doc.at("a", "run").integer("run.a"); }).what()) == "[json] run.a: text where an integer is needed");
  CHECK(std::string(error_of([&] { doc.at("c", "run"); }).what()) == "[json] run: the key 'c' is missing");
  CHECK_THROWS_AS(doc.at("b", "").integer("b"), Error);
  CHECK_THROWS_AS(doc.at("a", "").number("a"), Error);
  CHECK_THROWS_AS(doc.items("x"), Error);
  CHECK(doc.find("c") == nullptr);
}

TEST_CASE("what is not JSON is refused") {
  for (const char* bad : {"", "{", "[1,", "{\"a\":}", "{\"a\": 1, \"a\": 2}", "nul", "[1] 2", "\"\xff\"", "1e999", "18446744073709551615",
                          "[NaN]", "{'a': 1}"}) {
    CAPTURE(bad);
    const auto e = error_of([&] { parse_json(bad, "x.json"); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(std::string(e.what()).find("x.json") != std::string::npos);
  }
  CHECK_THROWS_AS(parse_json(std::string(100'000, '['), "x"), Error);
  CHECK_THROWS_AS(parse_json("[1, 2, 3]", "x", {.depth = 4, .values = 3}), Error);
}

TEST_CASE("damaged JSON gives an Error or a value, nothing else") {
  const std::string good = R"({"a": [1, 2.5, "x\u00e9", null, true], "b": {"c": -1e-3}})";
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    auto text = good;
    for (int k = 0; k <= i % 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    try {
      parse_json(text, "x");
    } catch (const Error&) {
    }
  }
}

TEST_CASE("files") {
  const TempDir dir;
  save_json(dir / "a.json", Json::object({{"a", 1}}));
  CHECK(load_json(dir / "a.json").at("a", "").integer("") == 1);
  CHECK(read_file(dir / "a.json", 100) == "{\n  \"a\": 1\n}\n");
  CHECK_THROWS_AS(load_json(dir / "b.json"), Error);
}

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
