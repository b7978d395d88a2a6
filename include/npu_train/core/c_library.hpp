/// The C library of the process.
#pragma once

#include <string>

namespace npu_train {

/// "glibc 2.36"; "unknown C library" for one without a version function, such as musl.
std::string c_library();

}  // namespace npu_train
