// Values of templates: comparison, text, elements, methods of texts and objects.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <ctime>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/jinja.hpp"

namespace npu_train::detail {
namespace {

using Of = Json::Kind;

bool is_number_value(const Json& v) { return v.kind() == Of::Integer || v.kind() == Of::Number || v.kind() == Of::Boolean; }

double number_value(const Json& v) { return v.kind() == Of::Boolean ? (v.boolean("") ? 1 : 0) : v.number(""); }

[[noreturn]] void refuse_value(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::Data, "chat_template", where + ": " + what);
}

std::string stripped(const std::string& text, const JinjaArguments& arguments, bool left, bool right, const std::string& where) {
  const auto* given = arguments.find(0, "chars");
  const std::string blanks = given != nullptr ? given->json.text(where) : std::string(" \t\n\r\f\v");
  if (first_invalid_byte(blanks) == std::string::npos && std::any_of(blanks.begin(), blanks.end(), [](char c) { return (c & 0x80) != 0; }))
    refuse_value(where, "strip() of characters beyond ASCII is not supported");
  const auto begin = left ? text.find_first_not_of(blanks) : 0;
  if (begin == std::string::npos) return "";
  const auto end = right ? text.find_last_not_of(blanks) + 1 : text.size();
  return end > begin ? text.substr(begin, end - begin) : "";
}

std::string with_case(std::string text, bool upper) {
  for (auto& c : text) {
    if ((c & 0x80) == 0) c = static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
  }
  return text;
}

Json split_text(const std::string& text, const JinjaArguments& arguments, const std::string& where) {
  auto out = Json::array();
  if (arguments.values.empty()) {
    for (size_t at = text.find_first_not_of(" \t\n\r\f\v"); at != std::string::npos;) {
      const auto end = std::min(text.find_first_of(" \t\n\r\f\v", at), text.size());
      out.push_back(text.substr(at, end - at));
      at = text.find_first_not_of(" \t\n\r\f\v", end);
    }
    return out;
  }
  const auto& by = arguments.values[0].json.text(where);
  if (by.empty()) refuse_value(where, "split() by an empty text");
  int64_t most = arguments.values.size() > 1 ? arguments.values[1].json.integer(where) : -1;
  size_t begin = 0;
  for (size_t at = text.find(by); at != std::string::npos && most != 0; at = text.find(by, begin), --most) {
    out.push_back(text.substr(begin, at - begin));
    begin = at + by.size();
  }
  out.push_back(text.substr(begin));
  return out;
}

// Implements startswith() and endswith(), whose argument is a text or a list of texts.
bool has_affix(const std::string& text, const JinjaArguments& arguments, bool begin, const std::string& where) {
  const auto* given = arguments.find(0, "prefix");
  if (given == nullptr) refuse_value(where, "an argument is missing");
  const auto is = [&](const Json& affix) { return begin ? text.starts_with(affix.text(where)) : text.ends_with(affix.text(where)); };
  if (!given->json.is_array()) return is(given->json);
  const auto& all = given->json.items(where);
  return std::any_of(all.begin(), all.end(), is);
}

JinjaValue text_method(const std::string& name, const std::string& text, const JinjaArguments& arguments, const std::string& where) {
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return {stripped(text, arguments, name != "rstrip", name != "lstrip", where)};
  if (name == "upper" || name == "lower") return {with_case(text, name == "upper")};
  if (name == "split") return {split_text(text, arguments, where)};
  if (name == "startswith" || name == "endswith") return {has_affix(text, arguments, name == "startswith", where)};
  if (name == "replace") {
    if (arguments.values.size() != 2) refuse_value(where, "replace() has two arguments");
    const auto &from = arguments.values[0].json.text(where), &to = arguments.values[1].json.text(where);
    if (from.empty()) refuse_value(where, "replace() of an empty text");
    std::string out = text;
    for (size_t at = out.find(from); at != std::string::npos; at = out.find(from, at + to.size())) {
      out.replace(at, from.size(), to);
      if (out.size() > size_t{64} << 20) refuse_value(where, "a text of more than 64 MiB");
    }
    return {out};
  }
  refuse_value(where,
               "the method '" + name +
                   "' of a text is not supported; allowed: endswith, lower, lstrip, replace, rstrip, split, startswith, strip, upper");
}

JinjaValue object_method(const std::string& name, const Json& object, const JinjaArguments& arguments, const std::string& where) {
  auto out = Json::array();
  if (name == "get") {
    const auto* key = arguments.find(0, "key");
    const auto* found = key == nullptr ? nullptr : object.find(key->json.text(where));
    if (found != nullptr) return {*found};
    const auto* missing = arguments.find(1, "default");
    return missing != nullptr ? *missing : JinjaValue{Json()};
  }
  if (name != "items" && name != "keys" && name != "values")
    refuse_value(where, "the method '" + name + "' of an object is not supported; allowed: get, items, keys, values");
  for (const auto& member : object.members(where))
    out.push_back(name == "items" ? Json::array({Json(member.key), member.value}) : name == "keys" ? Json(member.key) : member.value);
  return {out};
}

}  // namespace

bool JinjaValue::is_true() const {
  switch (json.kind()) {
    case Of::Null:
      return false;
    case Of::Boolean:
      return json.boolean("");
    case Of::Integer:
    case Of::Number:
      return json.number("") != 0;
    case Of::Text:
      return !json.text("").empty();
    case Of::Array:
      return !json.items("").empty();
    case Of::Object:
      return !json.members("").empty();
  }
  return false;
}

const JinjaValue* JinjaArguments::find(size_t index, std::string_view name) const {
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return index < values.size() ? &values[index] : nullptr;
}

bool jinja_equal(const Json& a, const Json& b) {
  if (is_number_value(a) && is_number_value(b)) return number_value(a) == number_value(b);
  if (a.kind() != b.kind()) return false;
  if (a.is_null()) return true;
  if (a.is_text()) return a.text("") == b.text("");
  if (a.is_array()) {
    const auto &x = a.items(""), &y = b.items("");
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), jinja_equal);
  }
  const auto& members = a.members("");
  return members.size() == b.members("").size() && std::all_of(members.begin(), members.end(), [&](const Json::Member& m) {
           const auto* other = b.find(m.key);
           return other != nullptr && jinja_equal(m.value, *other);
         });
}

bool jinja_less(const Json& a, const Json& b, const std::string& where) {
  if (is_number_value(a) && is_number_value(b)) return number_value(a) < number_value(b);
  if (a.is_text() && b.is_text()) return a.text("") < b.text("");
  refuse_value(where, "values of these kinds cannot be compared");
}

std::string jinja_text(const JinjaValue& value, const std::string& where) {
  if (!value.defined) return "";
  switch (value.json.kind()) {
    case Of::Null:
      return "None";
    case Of::Boolean:
      return value.json.boolean("") ? "True" : "False";
    case Of::Text:
      return value.json.text("");
    case Of::Integer:
    case Of::Number:
      return value.json.dump(0);
    default:
      refuse_value(where, "a list or an object is printed; hint: the filter tojson makes it a text");
  }
}

std::vector<Json> jinja_elements(const JinjaValue& value, const std::string& where) {
  if (!value.defined) return {};
  if (value.json.is_array()) return value.json.items(where);
  std::vector<Json> out;
  if (value.json.is_object()) {
    for (const auto& member : value.json.members(where)) out.emplace_back(member.key);
    return out;
  }
  if (!value.json.is_text()) refuse_value(where, "this kind of value has no elements");
  const auto& text = value.json.text(where);
  for (size_t at = 0; at < text.size();) {
    const auto end = behind_point(text, at);
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

JinjaValue jinja_item(const JinjaValue& value, const JinjaValue& key, const std::string& where) {
  if (!value.defined) refuse_value(where, "an element of a value that is not defined");
  if (value.json.is_object()) {
    const auto* found = key.json.is_text() ? value.json.find(key.json.text(where)) : nullptr;
    return found != nullptr ? JinjaValue{*found} : JinjaValue::undefined();
  }
  if ((!value.json.is_array() && !value.json.is_text()) || key.json.kind() != Of::Integer) return JinjaValue::undefined();
  const auto all = jinja_elements(value, where);
  auto index = key.json.integer(where);
  if (index < 0) index += static_cast<int64_t>(all.size());
  return index >= 0 && index < static_cast<int64_t>(all.size()) ? JinjaValue{all[static_cast<size_t>(index)]} : JinjaValue::undefined();
}

JinjaValue jinja_slice(const JinjaValue& value, const JinjaValue& begin, const JinjaValue& end, const JinjaValue& step,
                       const std::string& where) {
  const auto all = jinja_elements(value, where);
  const auto size = static_cast<int64_t>(all.size());
  const auto stride = step.defined && !step.json.is_null() ? step.json.integer(where) : 1;
  if (stride != 1 && stride != -1) refuse_value(where, "a slice with another step than 1 or -1 is not supported");
  const auto limit = [&](const JinjaValue& given, int64_t missing) {
    if (!given.defined || given.json.is_null()) return missing;
    const auto index = given.json.integer(where);
    const int64_t least = stride > 0 ? 0 : -1, most = stride > 0 ? size : size - 1;
    return std::clamp(index < 0 ? index + size : index, least, most);
  };
  std::vector<Json> out;
  const auto first = limit(begin, stride > 0 ? 0 : size - 1), last = limit(end, stride > 0 ? size : -1);
  for (auto i = first; stride > 0 ? i < last : i > last; i += stride) out.push_back(all[static_cast<size_t>(i)]);
  if (!value.json.is_text()) return {Json::array(std::move(out))};
  std::string text;
  for (const auto& character : out) text += character.text(where);
  return {text};
}

JinjaValue jinja_method(const std::string& name, const JinjaValue& value, const JinjaArguments& arguments, const std::string& where) {
  if (value.defined && value.json.is_text()) return text_method(name, value.json.text(where), arguments, where);
  if (value.defined && value.json.is_object()) return object_method(name, value.json, arguments, where);
  refuse_value(where, "the method '" + visible_start(name, 40) + "' of this kind of value is not supported");
}

std::string jinja_time(const std::string& format, const std::string& where) {
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  const std::string month = kMonths[local.tm_mon];
  const auto two = [](int number) { return (number < 10 ? "0" : "") + std::to_string(number); };
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    switch (format[++i]) {
      case 'd':
        out += two(local.tm_mday);
        break;
      case 'm':
        out += two(local.tm_mon + 1);
        break;
      case 'b':
        out += month.substr(0, 3);
        break;
      case 'B':
        out += month;
        break;
      case 'Y':
        out += std::to_string(local.tm_year + 1900);
        break;
      case 'H':
        out += two(local.tm_hour);
        break;
      case 'M':
        out += two(local.tm_min);
        break;
      case 'S':
        out += two(local.tm_sec);
        break;
      default:
        refuse_value(where, str_cat("'%", format[i], "' of a time is not supported; allowed: %d %m %b %B %Y %H %M %S"));
    }
  }
  return out;
}

}  // namespace npu_train::detail
