#include "npu_train/io/scratch_folder.hpp"

#include <unistd.h>

#include <cstdlib>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const char* where) {
  std::error_code error;
  const auto folder = fs::temp_directory_path(error);
  const char* set = std::getenv("TMPDIR");
  check(!error, ErrorKind::Checkpoint, where, "TMPDIR is ", set == nullptr ? "" : set, ", which is not a folder for temporary files");
  auto pattern = (folder / "npu_train_XXXXXX").string();
  check(::mkdtemp(pattern.data()) != nullptr, ErrorKind::Checkpoint, where, pattern,
        ": cannot be created; hint: set TMPDIR to a folder for temporary files");
  path = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace npu_train::detail
