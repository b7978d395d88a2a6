// The configuration of msprobe's PrecisionDebugger (config.json).
#pragma once

#include <string>

#include "npu_train/tools/align/dump_options.hpp"

namespace npu_train::detail {

// Sets the options that the file has: task, level, rank, step, dump_path, async_dump, and of the task's object scope, list, data_mode and
// summary_mode. Objects of other tasks are ignored, as by msprobe. Error(Usage) for an unknown key, a value without a counterpart (a dump
// must not have less than its file asks for), and an option that is not at its default and has another value in the file; Error(Data) for
// a file that cannot be read.
void apply_msprobe_config(const std::string& path, DumpOptions& options);

}  // namespace npu_train::detail
