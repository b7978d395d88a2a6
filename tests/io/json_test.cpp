#include "testing.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "bounded.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

using namespace npu_train;

using npu_train::testing::error_of;
using npu_train::testing::has;
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
  CHECK(std::string(error_of([&] { doc.at("a", "run").integer("run.a"); }).what()) == "[json] run.a: text; it must be an integer");
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

TEST_CASE("many keys") {
  Json doc;
  for (int i = 0; i < 200'000; ++i) doc.push_member("key " + std::to_string(i), i);
  const auto again = parse_json(doc.dump(0), "x");
  REQUIRE(again.members("x").size() == 200'000);
  CHECK(again.members("x")[123'456].key == "key 123456");
  CHECK(again.members("x")[123'456].value.integer("x") == 123'456);
  doc.push_member("key 77", 0);
  CHECK(has(error_of([&] { parse_json(doc.dump(0), "x"); }).what(), "'key 77' occurs twice"));
  CHECK(error_of([] { Json(1).push_member("a", 2); }).kind() == ErrorKind::Data);
  CHECK(sizeof(Json) <= 40);
}

TEST_CASE("zero bytes do not end a document") {
  for (const auto& bad : {std::string("[1]\0", 4), std::string("[1]\0[2]", 7), std::string("\0", 1), std::string("[\"a\0\"]", 6)}) {
    CHECK(has(error_of([&] { parse_json(bad, "x"); }).what(), "zero byte"));
  }
}

TEST_CASE("a truncated document keeps its complete parts") {
  const auto prefix = [](const std::string& text) {
    const auto out = parse_json_prefix(text, "x");
    return (out.complete ? "complete " : "cut ") + out.value.dump(0);
  };
  CHECK(prefix(R"({"a": [1, {"b": 2, "c": 34}]})") == R"(complete {"a": [1, {"b": 2, "c": 34}]})");
  CHECK(prefix(R"({"a": [1, {"b": 2, "c": 34})") == R"(cut {"a": [1, {"b": 2, "c": 34}]})");
  CHECK(prefix(R"({"a": [1, {"b": 2, "c": 34)") == R"(cut {"a": [1, {"b": 2}]})");
  CHECK(prefix(R"({"a": [1, {"b": 2, "c": 34 )") == R"(cut {"a": [1, {"b": 2, "c": 34}]})");
  CHECK(prefix(R"({"a": [1, {"b": 2, "c": )") == R"(cut {"a": [1, {"b": 2}]})");
  CHECK(prefix(R"({"a": [1, {"b": 2, "c)") == R"(cut {"a": [1, {"b": 2}]})");
  CHECK(prefix(R"({"a": [1, {)") == R"(cut {"a": [1, {}]})");
  CHECK(prefix(R"({"a": [1)") == R"(cut {"a": []})");
  CHECK(prefix(R"({"a": [1, -)") == R"(cut {"a": [1]})");
  CHECK(prefix(R"({"a": [1, "b 5)") == R"(cut {"a": [1]})");
  CHECK(prefix(R"({"a": [1, "b\)") == R"(cut {"a": [1]})");
  CHECK(prefix(R"({"a": [1, "b\u00)") == R"(cut {"a": [1]})");
  CHECK(prefix("{\"a\": [1, \"\xc3") == R"(cut {"a": [1]})");
  CHECK(prefix(R"({"a": [1, tru)") == R"(cut {"a": [1]})");
  CHECK(prefix(R"({"a": [NaN, Infinity, -Infinity, "NaN", "\"NaN)") == R"(cut {"a": ["nan", "inf", "-inf", "NaN"]})");
  CHECK(prefix(R"({"NaN": NaN, "a": Infini)") == R"(cut {"NaN": "nan"})");
  CHECK(prefix(R"({"a": -Infinity}
)") == R"(complete {"a": "-inf"})");
  CHECK(prefix(R"({"a": {"NaN": 1}, "b": [)" + std::string(4096, '\0')) == R"(cut {"a": {"NaN": 1}, "b": []})");
  CHECK(prefix("{}" + std::string(10, '\0')) == "complete {}");
  CHECK(prefix("") == "cut null");
  CHECK(prefix("  ") == "cut null");
  CHECK(prefix("15") == "complete 15");
  CHECK(prefix("\"15") == "cut null");
  CHECK(std::isinf(parse_json_prefix("[-Infinity]", "x").value.items("")[0].number("")));

  for (const char* bad : {"{} x", "{} 5", "{} \"a", "{}{", "[1] nul", "[1,, 2", "[1} ", "{1 ", "{\"a\": 1, \"a\": 2, ", "[nan, ", "[NaN3, ",
                          "[NaNs]", "{\"a\" 1 ", "[1.e, ", "[\"\x01", "[\"\xff", "[+Infinity]", "x y", "[01, "}) {
    CAPTURE(bad);
    CHECK(error_of([&] { parse_json_prefix(bad, "x"); }).kind() == ErrorKind::Data);
  }
  CHECK_THROWS_AS(parse_json_prefix(std::string("[1\0, 2]", 8), "x"), Error);
  CHECK_THROWS_AS(parse_json_prefix(std::string(100'000, '['), "x"), Error);
  CHECK_THROWS_AS(parse_json_prefix("[1, 2, 3, ", "x", {.depth = 4, .values = 2}), Error);
}

TEST_CASE("wherever it is truncated, the result is a part of the document") {
  const std::string text =
      R"({"task": "tensor", "data": {"a.0": {"Max": -1.5e3, "shape": [16, 3], "ok": true, "none": null, "name": "\u00e9\ud83d\ude00 \\\" [{"},)"
      R"( "b.0": {"list": [[], {}, [[1]], "x", NaN], "Min": Infinity}}, "end": 12})";
  const auto whole = parse_json_prefix(text, "x");
  REQUIRE(whole.complete);
  // Checks that every member of the part is in the complete value, in the same order, and that only the last one of a container is partial.
  const std::function<bool(const Json&, const Json&)> is_part = [&](const Json& part, const Json& all) {
    if (part.kind() != all.kind()) return false;
    if (part.is_array()) {
      const auto &p = part.items(""), &a = all.items("");
      for (size_t i = 0; i < p.size(); ++i) {
        if (i >= a.size() || !(i + 1 < p.size() ? p[i].dump() == a[i].dump() : is_part(p[i], a[i]))) return false;
      }
      return true;
    }
    if (part.is_object()) {
      const auto &p = part.members(""), &a = all.members("");
      for (size_t i = 0; i < p.size(); ++i) {
        if (i >= a.size() || p[i].key != a[i].key) return false;
        if (!(i + 1 < p.size() ? p[i].value.dump() == a[i].value.dump() : is_part(p[i].value, a[i].value))) return false;
      }
      return true;
    }
    return part.dump() == all.dump();
  };
  size_t longest = 0;
  for (size_t length = 1; length < text.size(); ++length) {
    CAPTURE(length);
    const auto part = parse_json_prefix(text.substr(0, length), "x");
    CHECK_FALSE(part.complete);
    CHECK(is_part(part.value, whole.value));
    CHECK(part.value.dump(0).size() >= longest);  // a longer text never gives less
    longest = part.value.dump(0).size();
  }
}

TEST_CASE("damaged JSON gives an Error or a value, nothing else") {
  const std::string good = R"({"a": [1, 2.5, "x\u00e9", null, true], "b": {"c": -1e-3}})";
  std::mt19937 random(3);
  int values = 0, errors = 0;
  const auto survives = [&](const std::function<Json()>& parse) {
    try {
      const auto text = parse().dump(0);
      CHECK(parse_json(text, "x").dump(0) == text);
      ++values;
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Data);
      ++errors;
    }
  };
  for (int i = 0; i < 5000; ++i) {
    CAPTURE(i);
    auto text = good;
    for (int k = 0; k <= i % 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    survives([&] { return parse_json(text, "x"); });
    survives([&] { return parse_json_prefix(text.substr(0, random() % (text.size() + 1)), "x").value; });
  }
  CHECK(values > 1000);
  CHECK(errors > 1000);
}

TEST_CASE("files") {
  const TempDir dir;
  save_json(dir / "a.json", Json::object({{"a", 1}}));
  CHECK(load_json(dir / "a.json").at("a", "").integer("") == 1);
  CHECK(read_file(dir / "a.json", 100) == "{\n  \"a\": 1\n}\n");
  CHECK_THROWS_AS(load_json(dir / "b.json"), Error);
  CHECK(has(error_of([&] { load_json(dir / "a.json", {.max_bytes = 10}); }).what(), "at most 10"));
  write_file_atomic(dir / "cut.json", "{\"a\": 1, \"b\"");
  const auto cut = load_json_prefix(dir / "cut.json");
  CHECK_FALSE(cut.complete);
  CHECK(cut.value.dump(0) == "{\"a\": 1}");
  CHECK(load_json_prefix(dir / "a.json").complete);
  CHECK_THROWS_AS(load_json_prefix(dir / "b.json"), Error);
}

TEST_CASE("a text of deletes is written escaped in time in proportion to its size") {
  CHECK(Json("a\x7f\x1b\xc2\x9b\xe2\x80\xae").dump() == R"("a\u007f\u001b\u009b\u202e")");
  const Json deletes(std::string(8'000'000, '\x7f'));
  CHECK(testing::grows_in_proportion([&] {
    if (deletes.dump().size() != 6 * 8'000'000 + 2) throw std::runtime_error("another size");
  }));
}

TEST_CASE("values in their order") {
  CHECK(detail::json_list({"b", "a\""}).dump(0) == "[\"b\", \"a\\\"\"]");
  CHECK(detail::json_list(std::vector<double>{0.5, 2}).dump(0) == "[0.5, 2.0]");
  CHECK(detail::json_list({}).dump(0) == "[]");
}
