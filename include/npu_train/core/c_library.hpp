/// The C library that the process runs on.
#pragma once

#include <string>

namespace npu_train {

/// "glibc 2.36"; "unknown C library" for one that cannot be asked, such as musl.
std::string c_library();

}  // namespace npu_train
