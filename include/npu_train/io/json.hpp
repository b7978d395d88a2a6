/// JSON documents: manifests, histories, and the lists of a dump. Numbers are restored exactly, including inf and nan. It wraps nlohmann's
/// parser, because that library does not limit depth and size, keeps the last of two equal keys, and writes nan as null.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "npu_train/core/error.hpp"

namespace npu_train {

/// One JSON value. Objects keep the order of their keys. Integers and other numbers are different kinds ("1" and "1.0").
class Json {
 public:
  enum class Kind { Null, Boolean, Integer, Number, Text, Array, Object };
  struct Member;

  // Defined below, because a vector of the incomplete type Member may be declared but not created.
  Json();
  Json(bool value);
  Json(int value);
  Json(int64_t value);
  Json(uint64_t value) = delete;  // hashes do not fit into JSON's numbers: write hex64(value)
  Json(double value);
  Json(const char* text);
  Json(std::string text);
  Json(std::string_view text);

  static Json array();
  static Json array(std::vector<Json> items);
  static Json object();
  static Json object(std::vector<std::pair<std::string, Json>> members);

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::Null; }
  bool is_array() const { return kind() == Kind::Array; }
  bool is_object() const { return kind() == Kind::Object; }
  bool is_text() const { return kind() == Kind::Text; }

  /// Return the value as this type; Error(Data) names `where` and the actual type of the value. `number` also accepts integers, and the
  /// texts "inf", "-inf" and "nan".
  bool boolean(const std::string& where) const;
  int64_t integer(const std::string& where) const;
  double number(const std::string& where) const;
  const std::string& text(const std::string& where) const;
  const std::vector<Json>& items(const std::string& where) const;
  const std::vector<Member>& members(const std::string& where) const;

  /// Returns the value of `key`; nullptr if it is missing or this is not an object. The search is linear: for large objects, iterate over
  /// `members` instead.
  const Json* find(std::string_view key) const;
  /// Returns the value of `key`; Error(Data) names `where` if it is missing.
  const Json& at(std::string_view key, const std::string& where) const;
  /// Sets a key of an object (or of null, which becomes one). Searches linearly.
  Json& set(std::string_view key, Json value);
  /// Adds a new key to an object (or to null, which becomes one) without searching: for objects with many keys.
  Json& push_member(std::string key, Json value);
  /// Adds an item to an array (or to null, which becomes one).
  Json& push_back(Json value);

  /// Returns the text; `indent` 0 gives one line. Non-finite numbers become texts; bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = 2) const;

 private:
  friend class JsonBuilder;
  // alternatives in the order of Kind
  std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<Json>, std::vector<Member>> value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

inline Json::Json() = default;
inline Json::Json(bool value) : value_(value) {}
inline Json::Json(int value) : value_(int64_t{value}) {}
inline Json::Json(int64_t value) : value_(value) {}
inline Json::Json(double value) : value_(value) {}
inline Json::Json(const char* text) : value_(std::string(text)) {}
inline Json::Json(std::string text) : value_(std::move(text)) {}
inline Json::Json(std::string_view text) : value_(std::string(text)) {}
inline Json Json::array() { return array(std::vector<Json>()); }
inline Json Json::object() { return object(std::vector<std::pair<std::string, Json>>()); }

/// Limits for untrusted files.
struct JsonLimits {
  size_t depth = 64;
  size_t values = 1'000'000;
  uint64_t max_bytes = uint64_t{64} << 20;  ///< maximum size of a file
};

/// Parses JSON. Error(Data) with the position if `text` is not JSON, repeats a key in an object, or exceeds the limits.
Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits = {});

Json load_json(const std::filesystem::path& path, const JsonLimits& limits = {});

/// A document that may be truncated.
struct JsonPrefix {
  Json value;
  bool complete = false;
};

/// Parses the output of a program that may have been killed while writing, such as Python's json module. NaN, Infinity and -Infinity are
/// also accepted and become the texts "nan", "inf" and "-inf", which `Json::number` accepts.
///
/// If the text ends too early, `value` has everything up to that point: open containers are closed with their complete members. A key
/// without its value, and an incomplete value (a number at the very end may have more digits), are omitted. Zero bytes at the end count as
/// missing text. An empty text gives null. Error(Data) as in parse_json() for other errors, and for text after the end of the document. A
/// number or word at the very end of the text is omitted without being parsed, so invalid content there is not reported.
JsonPrefix parse_json_prefix(std::string_view text, const std::string& source, const JsonLimits& limits = {});
/// Like parse_json_prefix(), for a file.
JsonPrefix load_json_prefix(const std::filesystem::path& path, const JsonLimits& limits = {});

/// Writes `path` atomically.
void save_json(const std::filesystem::path& path, const Json& value);

}  // namespace npu_train

namespace npu_train::detail {

/// Returns a JSON array such as ["a", "b"] or [1, 2]. Without a template argument, a list in braces is a list of texts.
template <class T = std::string>
Json json_list(const std::vector<T>& list) {
  auto out = Json::array();
  for (const auto& value : list) out.push_back(value);
  return out;
}

}  // namespace npu_train::detail
