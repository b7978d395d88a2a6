// Files with one JSON object in each line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "npu_train/io/json.hpp"

namespace npu_train {

// Calls `see` for each line of a file that is not blank, with its number from 1 and "FILE, line N". Error(Data) if the file cannot be read,
// or a line is not a JSON object or is longer than 64 MiB.
void for_each_json_line(const std::string& path,
                        const std::function<void(const Json& line, int64_t number, const std::string& where)>& see);

}  // namespace npu_train
