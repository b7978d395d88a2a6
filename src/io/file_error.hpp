/// Uniform messages for file errors of the operating system.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

inline const char* write_hint(const std::filesystem::path& path, int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or write to another disk";
    case EROFS:
    case EACCES:
    case EPERM:
      return "choose a writable folder";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f)";
    case ENOENT: {
      std::error_code ignored;
      const auto folder = path.parent_path();
      const bool there = folder.empty() || std::filesystem::is_directory(folder, ignored);  // such as /proc, where no files can be created
      return there ? "choose a writable folder" : "create the folder first";
    }
    case ENOTDIR:
      return "a part of the path is a file; choose another path";
    case ENAMETOOLONG:
      return "choose a shorter name";
    default:
      return "";
  }
}

/// `what` is, for example, "cannot write 4,096 bytes".
[[noreturn]] inline void throw_write_error(const char* where, const std::filesystem::path& path, const std::string& what, int code) {
  throw Error(ErrorKind::Checkpoint, where, path.string() + ": " + what + ": " + std::strerror(code), write_hint(path, code));
}

}  // namespace npu_train::detail
