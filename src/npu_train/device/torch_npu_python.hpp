/// The Python interpreter that has imported torch_npu: what the wheel's library does not export is called through it.
#pragma once

#include <string>

namespace npu_train::detail {

/// True if an interpreter of this process has imported torch_npu.
bool has_torch_npu_in_python();

/// Runs statements in that interpreter and returns str() of the variable `result` that they set. std::runtime_error if they raise.
std::string run_in_torch_npu_python(const std::string& code);

}  // namespace npu_train::detail
