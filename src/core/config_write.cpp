// Writes a configuration as YAML or JSON text.
#include <cctype>
#include <cmath>

#include "core/scalar.hpp"
#include "npu_train/core/config_node.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

constexpr size_t kLineWidth = 110;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Returns whether every YAML reader reads the unquoted text unchanged, in blocks and inside {} and [].
bool plain_is_safe(const std::string& text) {
  if (text.empty() || text.size() > kLineWidth || detail::is_special_word(text)) return false;
  const bool path = text.starts_with("/") || text.starts_with("./") || text.starts_with("../");
  if (!is_letter(text[0]) && text[0] != '_' && !path) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool last = i + 1 == text.size();
    if (is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '/' || c == '.' || c == '-' || c == '+') continue;
    if (c == ':' && !last && text[i + 1] != ' ' && text[i + 1] != ':') continue;
    if (c == ' ' && !last) continue;
    return false;
  }
  return true;
}

// Escapes non-ASCII text for YAML and JSON: characters that affect a terminal become escapes such as \u202e, and bytes that are not UTF-8
// become \ufffd.
std::string beyond_ascii(std::string_view text) {
  auto out = detail::visible_text(text);
  for (size_t at = out.find("\\x"); at != std::string::npos; at = out.find("\\x", at)) out.replace(at, 4, "\\ufffd");
  return out;
}

std::string quoted(const std::string& text) {
  constexpr size_t kPiece = 256;  // bytes given to beyond_ascii() at once, because its cost is quadratic in the length
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      size_t end = i + 1;
      const auto continues = [&] { return (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; };
      while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80 &&
             (end - i < kPiece || (continues() && end - i < kPiece + 4)))
        ++end;
      out += beyond_ascii(std::string_view(text).substr(i, end - i));
      i = end - 1;
      continue;
    }
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += printed("\\u%04x", byte);  // valid in YAML and in JSON
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string separator(const std::string& before) { return before.empty() ? "" : ", "; }

std::string enclosed(char open, const std::string& text, char close) {
  std::string out(1, open);
  out += text;
  out += close;
  return out;
}

std::string scalar_text(const ConfigNode& node) {
  if (node.is_null()) return "null";
  const auto& text = node.scalar();
  if (!node.quoted() && detail::is_special_word(text) && !detail::is_null_word(text)) return text;
  return plain_is_safe(text) ? text : quoted(text);
}

std::string key_text(const std::string& key) { return plain_is_safe(key) ? key : quoted(key); }

bool small(const ConfigNode& node) {
  for (const auto& item : node.items()) {
    if (item.is_map() || item.is_list()) return false;
  }
  for (const auto& member : node.members()) {
    if (member.value.is_map() || (member.value.is_list() && !small(member.value))) return false;
  }
  return true;
}

void write_block(const ConfigNode& node, size_t indent, std::string& out);

// Writes `value` after "key:" or "-". That text begins at column `indent` and takes `used` columns, including the blank after it.
void write_value(const ConfigNode& value, size_t indent, size_t used, std::string& out) {
  if (!value.is_map() && !value.is_list()) {
    out += ' ';
    out += scalar_text(value);
    out += '\n';
    return;
  }
  if (small(value)) {
    const auto line = to_yaml_line(value);
    if (indent + used + line.size() < kLineWidth || (value.is_map() ? value.members().empty() : value.items().empty())) {
      out += ' ';
      out += line;
      out += '\n';
      return;
    }
  }
  out += "\n";
  write_block(value, indent + 2, out);
}

void write_block(const ConfigNode& node, size_t indent, std::string& out) {
  const std::string margin(indent, ' ');
  for (const auto& item : node.items()) {
    out += margin + "-";
    write_value(item, indent, 2, out);
  }
  for (const auto& member : node.members()) {
    const auto key = key_text(member.key);
    out += margin + key + ":";
    write_value(member.value, indent, key.size() + 2, out);
  }
}

bool is_json_number(const std::string& text) {
  size_t i = text[0] == '-' ? 1 : 0;
  const auto digits = [&] {
    const auto begin = i;
    while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]))) ++i;
    return i - begin;
  };
  const auto first = i;
  const auto whole = digits();
  if (whole == 0 || (whole > 1 && text[first] == '0')) return false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

std::string json_scalar(const ConfigNode& node) {
  const auto& text = node.scalar();
  if (node.quoted()) return quoted(text);
  if (text == "true" || text == "false") return text;
  const auto number = detail::parse_number(text);
  if (!number) return quoted(text);
  if (is_json_number(text)) return text;
  if (const auto integer = detail::parse_integer(text)) return std::to_string(*integer);
  const auto canonical = shortest(*number);
  return std::isfinite(*number) ? canonical : quoted(canonical);
}

}  // namespace

std::string to_yaml_line(const ConfigNode& node) {
  std::string out;
  if (node.is_list()) {
    for (const auto& item : node.items()) out += separator(out) + to_yaml_line(item);
    return enclosed('[', out, ']');
  }
  if (node.is_map()) {
    for (const auto& member : node.members()) out += separator(out) + key_text(member.key) + ": " + to_yaml_line(member.value);
    return enclosed('{', out, '}');
  }
  return scalar_text(node);
}

std::string to_yaml(const ConfigNode& node) {
  if (node.is_map() && node.members().empty()) return "{}\n";
  if (node.is_map() || (node.is_list() && !small(node))) {
    std::string out;
    write_block(node, 0, out);
    if (!node.is_map()) out.pop_back();
    return out;
  }
  return to_yaml_line(node);
}

std::string to_json(const ConfigNode& node) {
  std::string out;
  switch (node.kind()) {
    case ConfigNode::Kind::Null:
      return "null";
    case ConfigNode::Kind::Scalar:
      return json_scalar(node);
    case ConfigNode::Kind::List:
      for (const auto& item : node.items()) out += separator(out) + to_json(item);
      return enclosed('[', out, ']');
    case ConfigNode::Kind::Map:
      for (const auto& member : node.members()) out += separator(out) + quoted(member.key) + ": " + to_json(member.value);
      return enclosed('{', out, '}');
  }
  return out;
}

}  // namespace npu_train
