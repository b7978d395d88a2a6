/// Names and keys that nobody can guess.
#pragma once

#include <sys/random.h>

#include <cstddef>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"

namespace npu_train {

/// Returns `bytes` random bytes of the kernel (at most 256) as lower-case hexadecimal digits. Error(Internal) if the kernel provides no
/// random bytes.
inline std::string random_hex(size_t bytes) {
  std::vector<unsigned char> drawn(bytes);
  check(::getrandom(drawn.data(), bytes, 0) == static_cast<ssize_t>(bytes), ErrorKind::Internal, "random",
        "the kernel gives no random bytes");
  std::string out;
  for (const unsigned byte : drawn) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

}  // namespace npu_train
