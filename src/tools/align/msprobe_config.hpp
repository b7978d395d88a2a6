// The configuration of msprobe's PrecisionDebugger (config.json).
#pragma once

#include <functional>
#include <string>

#include "npu_train/tools/align/dump_options.hpp"

namespace npu_train::detail {

// Sets the options that the file has: task, level, rank, step, dump_path, async_dump, and of the task's object scope, list, data_mode,
// summary_mode and file_format. Objects of other tasks are ignored, as by msprobe, and null is no value. `is_given` tells whether the
// section has one of our keys. Error(Usage) for an unknown key, a value without a counterpart (a dump must not have less than its file asks
// for), and an option that is given and has another value in the file; Error(Data) for a file that cannot be read.
void apply_msprobe_config(const std::string& path, const std::function<bool(const char*)>& is_given, DumpOptions& options);

}  // namespace npu_train::detail
