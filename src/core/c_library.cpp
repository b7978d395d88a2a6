// The only file that includes a glibc header.
#include "npu_train/core/c_library.hpp"

#if __has_include(<gnu/libc-version.h>)
#include <gnu/libc-version.h>
#define NPU_TRAIN_GLIBC
#endif

namespace npu_train {

std::string c_library() {
#ifdef NPU_TRAIN_GLIBC
  return std::string("glibc ") + ::gnu_get_libc_version();
#else
  return "unknown C library";
#endif
}

}  // namespace npu_train
