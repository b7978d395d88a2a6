// Files of settings next to a tokenizer.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

/// Returns nullopt if there is no such file.
std::optional<Json> read_settings_file(const std::filesystem::path& path);

/// Returns nullptr for a missing member and for null.
const Json* given_setting(const Json& object, const char* key);

/// Returns the text of the special token `key`, such as "bos_token"; "" if there is none. In the file, the token is a text or an object
/// with "content". Error(Data) with the name `where` for other values.
std::string special_token(const Json& config, const char* key, const std::string& where);

}  // namespace npu_train::detail
