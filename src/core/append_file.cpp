#include "npu_train/core/append_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hold_signal.hpp"

namespace npu_train {
namespace {

int write_whole(int fd, std::string_view piece) {
  const HoldSignal hold(SIGXFSZ);
  while (!piece.empty()) {
    const auto done = ::write(fd, piece.data(), piece.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return ENOSPC;
    piece.remove_prefix(static_cast<size_t>(done));
  }
  return 0;
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  check(fd_ >= 0, ErrorKind::Checkpoint, "log", path_, ": cannot be opened for writing: ", std::strerror(errno),
        "; hint: create the folder first, or choose another one");
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AppendFile::write(std::string_view piece) {
  struct stat before {};
  const bool known = ::fstat(fd_, &before) == 0 && S_ISREG(before.st_mode);
  const int code = write_whole(fd_, piece);
  if (code == 0) return;
  // Removes a partial piece, which would otherwise become the beginning of the next one.
  const bool cut = known && ::ftruncate(fd_, before.st_size) == 0;
  throw Error(ErrorKind::Checkpoint, "log",
              path_ + ": " + std::to_string(piece.size()) + " bytes cannot be written: " + std::strerror(code),
              known && !cut ? "some of them may be at the end of the file" : "free some space on its disk");
}

}  // namespace npu_train
