// Values of a State as JSON. Small objects represent values that JSON does not support: {"number": "nan"}, {"bytes": "ff00"}.
#include "npu_train/io/state_json.hpp"

#include <cmath>

namespace npu_train {
namespace {

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
    const unsigned first = byte(i);
    const size_t more = first < 0x80                    ? 0
                        : first >= 0xc2 && first < 0xe0 ? 1
                        : first >= 0xe0 && first < 0xf0 ? 2
                        : first >= 0xf0 && first < 0xf5 ? 3
                                                        : 4;
    if (more == 4) return false;
    for (size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xc0u) != 0x80u) return false;
    }
    // Rejects overlong forms, surrogates, and values beyond the last code point.
    if ((first == 0xe0 && byte(i + 1) < 0xa0) || (first == 0xed && byte(i + 1) > 0x9f) || (first == 0xf0 && byte(i + 1) < 0x90) ||
        (first == 0xf4 && byte(i + 1) > 0x8f)) {
      return false;
    }
    i += more + 1;
  }
  return true;
}

Json bytes_to_json(const std::string& text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * text.size());
  for (const char c : text) {
    hex += digits[static_cast<unsigned char>(c) >> 4];
    hex += digits[static_cast<unsigned char>(c) & 15];
  }
  return Json::object({{"bytes", std::move(hex)}});
}

std::string bytes_from_hex(const std::string& hex, const std::string& where) {
  const auto digit = [&](char c) {
    check((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'), ErrorKind::Data, "json", where, ": not a hexadecimal digit");
    return c <= '9' ? c - '0' : c - 'a' + 10;
  };
  check(hex.size() % 2 == 0, ErrorKind::Data, "json", where, ": an odd number of hexadecimal digits");
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return out;
}

StateValue value_from_json(const Json& json, const std::string& where) {
  switch (json.kind()) {
    case Json::Kind::Integer:
      return json.integer(where);
    case Json::Kind::Number:
      return json.number(where);
    case Json::Kind::Text:
      return json.text(where);
    default:
      break;
  }
  if (const auto* number = json.find("number")) return number->number(where);
  return bytes_from_hex(json.at("bytes", where).text(where), where);
}

}  // namespace

Json values_to_json(const std::map<std::string, StateValue>& values) {
  std::vector<std::pair<std::string, Json>> members;
  for (const auto& [key, value] : values) {
    check(is_utf8(key), ErrorKind::Internal, "json", "a key of a state is not UTF-8");
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      members.emplace_back(key, *integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      members.emplace_back(key, std::isfinite(*number) ? Json(*number) : Json::object({{"number", *number}}));
    } else {
      const auto& text = std::get<std::string>(value);
      members.emplace_back(key, is_utf8(text) ? Json(text) : bytes_to_json(text));
    }
  }
  return Json::object(std::move(members));
}

std::map<std::string, StateValue> values_from_json(const Json& json, const std::string& where) {
  std::map<std::string, StateValue> out;
  try {
    for (const auto& [key, value] : json.members(where)) out.emplace(key, value_from_json(value, where + "." + key));
  } catch (const Error& e) {
    throw Error(ErrorKind::Checkpoint, where, e.what(), "", std::current_exception());
  }
  return out;
}

}  // namespace npu_train
