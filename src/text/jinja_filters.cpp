// Filters and tests of templates.
#include <algorithm>
#include <cctype>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "text/jinja.hpp"

namespace npu_train::detail {
namespace {

using Kinds = Json::Kind;

[[noreturn]] void refuse_filter(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::Data, "chat_template", where + ": " + what);
}

const Json& needed(const JinjaArguments& arguments, size_t index, const char* name, const std::string& where) {
  const auto* found = arguments.find(index, name);
  if (found == nullptr) refuse_filter(where, str_cat("the argument '", name, "' is missing"));
  return found->json;
}

std::string joined_elements(const JinjaValue& value, const JinjaArguments& arguments, const std::string& where) {
  const auto* between = arguments.find(0, "d");
  std::string out;
  const auto all = jinja_elements(value, where);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && between != nullptr) out += between->json.text(where);
    out += jinja_text({all[i]}, where);
  }
  return out;
}

// Implements selectattr() and rejectattr(). An element passes if its attribute is true or, if a test is given, if the attribute passes that
// test. If `wanted`, returns the elements that pass, otherwise those that do not.
Json selected(const JinjaValue& value, const JinjaArguments& arguments, bool wanted, const std::string& where) {
  const auto key = JinjaValue{needed(arguments, 0, "attribute", where)};
  JinjaArguments rest;
  for (size_t i = 2; i < arguments.values.size(); ++i) rest.values.push_back(arguments.values[i]);
  auto out = Json::array();
  for (const auto& element : jinja_elements(value, where)) {
    const auto found = jinja_item({element}, key, where);
    const bool passes =
        arguments.values.size() > 1 ? jinja_test(arguments.values[1].json.text(where), found, rest, where) : found.is_true();
    if (passes == wanted) out.push_back(element);
  }
  return out;
}

Json mapped(const JinjaValue& value, const JinjaArguments& arguments, const std::string& where) {
  const auto* attribute = arguments.find(arguments.values.size(), "attribute");
  auto out = Json::array();
  for (const auto& element : jinja_elements(value, where)) {
    const auto result = attribute != nullptr ? jinja_item({element}, *attribute, where)
                                             : jinja_filter(needed(arguments, 0, "filter", where).text(where), {element}, {}, where);
    out.push_back(result.json);
  }
  return out;
}

// Makes the first letter of the text, or of each word if `of_words`, upper case, and all other letters lower case.
std::string capitals(std::string text, bool of_words) {
  bool first = true;
  for (auto& c : text) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0;
    if ((c & 0x80) == 0) c = static_cast<char>(first ? std::toupper(c) : std::tolower(c));
    first = of_words && !letter;
  }
  return text;
}

Json whole_number_of(const Json& value, const std::string& where) {
  if (value.kind() == Kinds::Integer) return value;
  if (value.kind() == Kinds::Boolean) return int64_t{value.boolean(where)};
  const auto number = value.is_text() ? decimal_number(value.text(where)) : std::optional(value.number(where));
  if (!number || !(std::abs(*number) < 9e15)) return int64_t{0};
  return static_cast<int64_t>(*number);
}

int64_t length_of(const JinjaValue& value, const std::string& where) {
  if (!value.defined) return 0;
  if (value.json.is_text()) return static_cast<int64_t>(code_points(value.json.text(where)));
  return static_cast<int64_t>(jinja_elements(value, where).size());
}

JinjaValue element_filter(const std::string& name, const JinjaValue& value, const JinjaArguments& arguments, const std::string& where) {
  if (name == "length" || name == "count") return {length_of(value, where)};
  if (name == "list") return {Json::array(jinja_elements(value, where))};
  if (name == "join") return {joined_elements(value, arguments, where)};
  if (name == "selectattr" || name == "rejectattr") return {selected(value, arguments, name == "selectattr", where)};
  if (name == "map") return {mapped(value, arguments, where)};
  if (name == "items") return value.defined ? jinja_method("items", value, {}, where) : JinjaValue{Json::array()};
  if (name == "first") return jinja_item({Json::array(jinja_elements(value, where))}, {int64_t{0}}, where);
  if (name == "last") return jinja_item({Json::array(jinja_elements(value, where))}, {int64_t{-1}}, where);
  if (name == "reverse") return jinja_slice(value, JinjaValue::undefined(), JinjaValue::undefined(), {int64_t{-1}}, where);
  refuse_filter(where,
                "the filter '" + visible_start(name, 40) +
                    "' is not supported; allowed: capitalize, count, default, first, int, items, join, last, length, list, lower, map, "
                    "rejectattr, replace, reverse, safe, selectattr, string, title, tojson, trim, upper");
}

}  // namespace

JinjaValue jinja_filter(const std::string& name, const JinjaValue& value, const JinjaArguments& arguments, const std::string& where) {
  if (name == "default" || name == "d") {
    const auto* also_false = arguments.find(1, "boolean");
    const bool missing = !value.defined || (also_false != nullptr && also_false->is_true() && !value.is_true());
    if (!missing) return value;
    const auto* instead = arguments.find(0, "default_value");
    return instead != nullptr ? *instead : JinjaValue{""};
  }
  if (name == "tojson") {
    if (!value.defined) refuse_filter(where, "tojson of a value that is not defined");
    const auto* indent = arguments.find(0, "indent");
    for (const auto& [key, ignored] : arguments.named)
      if (key != "indent" && key != "ensure_ascii")
        refuse_filter(where, "the argument '" + visible_start(key, 40) + "' of tojson is not supported");
    return {value.json.dump(
        indent == nullptr || indent->json.is_null() ? 0 : static_cast<int>(std::clamp<int64_t>(indent->json.integer(where), 0, 16)))};
  }
  if (name == "trim") return jinja_method("strip", {jinja_text(value, where)}, arguments, where);
  if (name == "upper" || name == "lower" || name == "replace") return jinja_method(name, {jinja_text(value, where)}, arguments, where);
  if (name == "capitalize" || name == "title") return {capitals(jinja_text(value, where), name == "title")};
  if (name == "string") return {jinja_text(value, where)};
  if (name == "safe") return value;
  if (name == "int") return {whole_number_of(value.json, where)};
  return element_filter(name, value, arguments, where);
}

bool jinja_test(const std::string& name, const JinjaValue& value, const JinjaArguments& arguments, const std::string& where) {
  const auto kind = value.json.kind();
  if (name == "defined") return value.defined;
  if (name == "undefined") return !value.defined;
  if (name == "none") return value.defined && kind == Kinds::Null;
  if (name == "string") return kind == Kinds::Text;
  if (name == "mapping") return kind == Kinds::Object;
  if (name == "sequence" || name == "iterable")
    return !value.defined || kind == Kinds::Text || kind == Kinds::Array || kind == Kinds::Object;
  if (name == "number") return kind == Kinds::Integer || kind == Kinds::Number || kind == Kinds::Boolean;
  if (name == "integer") return kind == Kinds::Integer;
  if (name == "float") return kind == Kinds::Number;
  if (name == "boolean") return kind == Kinds::Boolean;
  if (name == "true") return kind == Kinds::Boolean && value.is_true();
  if (name == "false") return kind == Kinds::Boolean && !value.is_true();
  if (name == "odd") return value.json.integer(where) % 2 != 0;
  if (name == "even") return value.json.integer(where) % 2 == 0;
  if (name == "equalto" || name == "eq" || name == "==")
    return value.defined && jinja_equal(value.json, needed(arguments, 0, "other", where));
  if (name == "ne") return !jinja_equal(value.json, needed(arguments, 0, "other", where));
  if (name == "in") {
    const auto all = jinja_elements({needed(arguments, 0, "other", where)}, where);
    return std::any_of(all.begin(), all.end(), [&](const Json& each) { return jinja_equal(each, value.json); });
  }
  refuse_filter(where,
                "the test '" + visible_start(name, 40) +
                    "' is not supported; allowed: boolean, defined, eq, equalto, even, false, float, in, integer, iterable, mapping, ne, "
                    "none, number, odd, sequence, string, true, undefined");
}

}  // namespace npu_train::detail
