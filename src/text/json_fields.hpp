// Reads an object of tokenizer.json strictly: a member that is never read is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

class JsonFields {
 public:
  /// `where` names the object in errors: "tokenizer.json: normalizer.normalizers[1]". Error(Data) if `object` is not a JSON object.
  JsonFields(const Json& object, std::string where);

  const std::string& where() const { return where_; }
  std::string where(const std::string& key) const { return where_ + "." + key; }
  /// Returns nullptr for a missing member and for null.
  const Json* find(const std::string& key);
  const Json& at(const std::string& key);
  bool flag(const std::string& key, std::optional<bool> missing = std::nullopt);
  std::string text(const std::string& key);
  std::optional<std::string> optional_text(const std::string& key);
  int64_t integer(const std::string& key, int64_t least, int64_t most);
  /// Returns the only code point of a text.
  char32_t character(const std::string& key);
  /// Reads a member that has no effect on ids and texts.
  void unused(const std::string& key) { find(key); }
  /// Error(Data) with the name of the first member that was not read.
  void finish() const;

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> read_;
};

/// Returns the steps of a sequence. Error(Data) for more than 64 steps, and for sequences nested three levels deep, because the steps
/// multiply.
const std::vector<Json>& read_steps(JsonFields& fields, const std::string& key);

/// Error(Data) for a type that is not one of `allowed`.
[[noreturn]] void refuse_type(const std::string& where, const std::string& type, const std::string& allowed);

}  // namespace npu_train::detail
