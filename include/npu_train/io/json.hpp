/// Small JSON documents: manifests, histories, states. Numbers come back as they were, inf and nan too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {

/// One JSON value. Objects keep the order of their keys. Integers and numbers are told apart ("1" and "1.0").
class Json {
 public:
  enum class Kind { Null, Boolean, Integer, Number, Text, Array, Object };
  struct Member;

  Json() = default;
  Json(bool value) : kind_(Kind::Boolean), integer_(value) {}
  Json(int value) : kind_(Kind::Integer), integer_(value) {}
  Json(int64_t value) : kind_(Kind::Integer), integer_(value) {}
  Json(uint64_t value) = delete;  // hashes do not fit into JSON's numbers: write hex64(value)
  Json(double value) : kind_(Kind::Number), number_(value) {}
  Json(const char* text) : kind_(Kind::Text), text_(text) {}
  Json(std::string text) : kind_(Kind::Text), text_(std::move(text)) {}
  Json(std::string_view text) : kind_(Kind::Text), text_(text) {}

  static Json array(std::vector<Json> items = {});
  static Json object(std::vector<std::pair<std::string, Json>> members = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::Null; }
  bool is_array() const { return kind_ == Kind::Array; }
  bool is_object() const { return kind_ == Kind::Object; }
  bool is_text() const { return kind_ == Kind::Text; }

  /// Typed reads; Error(Data) names `where` and what the value is instead. `number` takes integers, and "inf", "-inf", "nan" as text.
  bool boolean(const std::string& where) const;
  int64_t integer(const std::string& where) const;
  double number(const std::string& where) const;
  const std::string& text(const std::string& where) const;
  const std::vector<Json>& items(const std::string& where) const;
  const std::vector<Member>& members(const std::string& where) const;

  /// The value under `key`; nullptr when it is missing or this is no object.
  const Json* find(std::string_view key) const;
  /// The value under `key`; Error(Data) names `where` when it is missing.
  const Json& at(std::string_view key, const std::string& where) const;
  /// Sets a key of an object (or of null, which becomes one).
  Json& set(std::string_view key, Json value);
  /// Adds an item to an array (or to null, which becomes one).
  Json& push_back(Json value);

  /// Text; `indent` 0 gives one line. Not finite numbers become text; bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = 2) const;

 private:
  Kind kind_ = Kind::Null;
  int64_t integer_ = 0;
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<Member> members_;
};

struct Json::Member {
  std::string key;
  Json value;
};

/// Limits of what is read from a file that anybody may have written.
struct JsonLimits {
  size_t depth = 64;
  size_t values = 1'000'000;
};

/// Error(Data) with the place when `text` is not JSON, repeats a key in an object, or goes beyond the limits.
Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits = {});

/// Reads a file of at most 64 MiB.
Json load_json(const std::filesystem::path& path);
/// Writes a file atomically.
void save_json(const std::filesystem::path& path, const Json& value);

/// The plain values of a State as an object that `values_from_json` reads back bit for bit (inf, nan and any bytes in texts included).
Json values_to_json(const std::map<std::string, StateValue>& values);
/// Error(Checkpoint) when `json` is not what values_to_json gives.
std::map<std::string, StateValue> values_from_json(const Json& json, const std::string& where);

}  // namespace npu_train
