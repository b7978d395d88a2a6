#include "npu_train/io/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

const char* name_of(Json::Kind kind) {
  static constexpr const char* names[] = {"null", "a boolean", "an integer", "a number", "text", "an array", "an object"};
  return names[static_cast<int>(kind)];
}

void check_kind(const Json& value, Json::Kind wanted, const std::string& where) {
  check(value.kind() == wanted, ErrorKind::Data, "json", where, ": ", name_of(value.kind()), "; it must be ", name_of(wanted));
}

// Returns the text in quotes. Also escapes characters that affect a terminal, which JSON does not require (\u009b).
std::string json_text(std::string_view text) {
  auto out = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (std::all_of(out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x7F; })) return out;
  std::string escaped;
  escaped.reserve(out.size());
  for (const char c : out) c == '\x7F' ? escaped.append("\\u007f") : escaped.append(1, c);
  return detail::visible_text(escaped);
}

void write(const Json& value, int indent, int depth, std::string& out) {
  const auto new_line = [&](int level) {
    if (indent <= 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * level), ' ');
  };
  switch (value.kind()) {
    case Json::Kind::Null:
      out += "null";
      break;
    case Json::Kind::Boolean:
      out += value.boolean("") ? "true" : "false";
      break;
    case Json::Kind::Integer:
      out += std::to_string(value.integer(""));
      break;
    case Json::Kind::Number: {
      const double number = value.number("");
      auto text = shortest(number);
      if (!std::isfinite(number)) {
        text = json_text(text);
      } else if (text.find_first_of(".e") == std::string::npos) {
        text += ".0";  // otherwise it would read back as an integer
      }
      out += text;
      break;
    }
    case Json::Kind::Text:
      out += json_text(value.text(""));
      break;
    case Json::Kind::Array: {
      const auto& items = value.items("");
      out += '[';
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += indent > 0 ? "," : ", ";
        new_line(depth + 1);
        write(items[i], indent, depth + 1, out);
      }
      if (!items.empty()) new_line(depth);
      out += ']';
      break;
    }
    case Json::Kind::Object: {
      const auto& members = value.members("");
      out += '{';
      for (size_t i = 0; i < members.size(); ++i) {
        if (i > 0) out += indent > 0 ? "," : ", ";
        new_line(depth + 1);
        out += json_text(members[i].key);
        out += ": ";
        write(members[i].value, indent, depth + 1, out);
      }
      if (!members.empty()) new_line(depth);
      out += '}';
      break;
    }
  }
}

}  // namespace

Json Json::array(std::vector<Json> items) {
  Json out;
  out.value_ = std::move(items);
  return out;
}

Json Json::object(std::vector<std::pair<std::string, Json>> members) {
  Json out;
  auto& to = out.value_.emplace<std::vector<Member>>();
  to.reserve(members.size());
  for (auto& [key, value] : members) to.push_back({std::move(key), std::move(value)});
  return out;
}

bool Json::boolean(const std::string& where) const {
  check_kind(*this, Kind::Boolean, where);
  return std::get<bool>(value_);
}

int64_t Json::integer(const std::string& where) const {
  check_kind(*this, Kind::Integer, where);
  return std::get<int64_t>(value_);
}

double Json::number(const std::string& where) const {
  if (const auto* integer = std::get_if<int64_t>(&value_)) return static_cast<double>(*integer);
  if (const auto* text = std::get_if<std::string>(&value_)) {
    if (*text == "inf") return std::numeric_limits<double>::infinity();
    if (*text == "-inf") return -std::numeric_limits<double>::infinity();
    if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
  }
  check_kind(*this, Kind::Number, where);
  return std::get<double>(value_);
}

const std::string& Json::text(const std::string& where) const {
  check_kind(*this, Kind::Text, where);
  return std::get<std::string>(value_);
}

const std::vector<Json>& Json::items(const std::string& where) const {
  check_kind(*this, Kind::Array, where);
  return std::get<std::vector<Json>>(value_);
}

const std::vector<Json::Member>& Json::members(const std::string& where) const {
  check_kind(*this, Kind::Object, where);
  return std::get<std::vector<Member>>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& member : std::get<std::vector<Member>>(value_)) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key, const std::string& where) const {
  check_kind(*this, Kind::Object, where);
  const auto* found = find(key);
  check(found != nullptr, ErrorKind::Data, "json", where, ": the key '", key, "' is missing");
  return *found;
}

Json& Json::set(std::string_view key, Json value) {
  if (auto* found = const_cast<Json*>(find(key))) {
    *found = std::move(value);
    return *this;
  }
  return push_member(std::string(key), std::move(value));
}

Json& Json::push_member(std::string key, Json value) {
  if (is_null()) value_.emplace<std::vector<Member>>();
  check_kind(*this, Kind::Object, key);
  std::get<std::vector<Member>>(value_).push_back({std::move(key), std::move(value)});
  return *this;
}

Json& Json::push_back(Json value) {
  if (is_null()) value_.emplace<std::vector<Json>>();
  check_kind(*this, Kind::Array, "push_back");
  std::get<std::vector<Json>>(value_).push_back(std::move(value));
  return *this;
}

std::string Json::dump(int indent) const {
  std::string out;
  write(*this, indent, 0, out);
  return out;
}

void save_json(const std::filesystem::path& path, const Json& value) { write_file_atomic(path, value.dump() + "\n"); }

}  // namespace npu_train
