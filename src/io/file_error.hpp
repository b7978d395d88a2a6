/// One wording for what the operating system says about files.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

inline const char* write_hint(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or write to another disk";
    case EROFS:
    case EACCES:
    case EPERM:
      return "choose a folder that you may write to";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f)";
    case ENOENT:
    case ENOTDIR:
      return "make the folder first";
    case ENAMETOOLONG:
      return "choose a shorter name";
    default:
      return "";
  }
}

/// `what` is "cannot write 4,096 bytes".
[[noreturn]] inline void throw_write_error(const char* where, const std::filesystem::path& path, const std::string& what, int code) {
  throw Error(ErrorKind::Checkpoint, where, path.string() + ": " + what + ": " + std::strerror(code), write_hint(code));
}

}  // namespace npu_train::detail
