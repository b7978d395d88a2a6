/// The name and version of the process's C library.
#pragma once

#include <string>

namespace npu_train {

/// Returns, for example, "glibc 2.36", or "unknown C library" if it has no version function (musl).
std::string c_library();

}  // namespace npu_train
