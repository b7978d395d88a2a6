// The configuration of msprobe's PrecisionDebugger (config.json).
#pragma once

#include <functional>
#include <string>

#include "npu_train/tools/align/dumper.hpp"

namespace npu_train::detail {

// Sets the options that the file contains: task, level, rank, step, dump_path and async_dump; and, from the object of the task: scope,
// list, data_mode, summary_mode and file_format. Like msprobe, ignores the objects of other tasks. null counts as not set. `is_given`
// returns whether the section `dump` sets a key. Error(Usage) for an unknown key, for a value without a counterpart (a dump must not
// contain less than the file requests), and for an option that the section sets to another value; Error(Data) for a file that cannot be
// read.
void apply_msprobe_config(const std::string& path, const std::function<bool(const char*)>& is_given, DumpOptions& options);

}  // namespace npu_train::detail
