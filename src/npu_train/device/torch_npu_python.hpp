/// The Python interpreter that has imported torch_npu. It provides the functions that the wheel's library does not export.
#pragma once

#include <string>

namespace npu_train::detail {

/// True if an interpreter of this process has imported torch_npu.
bool has_torch_npu_in_python();

/// Runs statements in the interpreter that has imported torch_npu, and returns str() of the variable `result` that they set. Throws
/// std::runtime_error if they raise an exception.
std::string run_in_torch_npu_python(const std::string& code);

}  // namespace npu_train::detail
