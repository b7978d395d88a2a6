#include "npu_train/io/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "io/file_error.hpp"
#include "io/temporary_name.hpp"
#include "npu_train/core/hold_signal.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

constexpr size_t kLargestCall = size_t{64} << 20;

int write_all(int fd, const char* data, size_t bytes) {
  const HoldSignal hold(SIGXFSZ);
  while (bytes > 0) {
    const auto done = ::write(fd, data, std::min(bytes, kLargestCall));
    if (done < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (done == 0) return ENOSPC;
    data += done;
    bytes -= static_cast<size_t>(done);
  }
  return 0;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, Durability durability) : path_(std::move(path)), durability_(durability) {
  check(path_.has_filename(), ErrorKind::Usage, "AtomicFile", "'", path_.string(), "' has no file name");
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path_, ignored);
  check(!std::filesystem::exists(status) || std::filesystem::is_regular_file(status) || std::filesystem::is_symlink(status),
        ErrorKind::Checkpoint, "AtomicFile", path_.string(), ": exists and is not a file; hint: choose another name");
  temporary_ = detail::temporary_beside(path_);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) detail::throw_write_error("AtomicFile", path_, "cannot be created", errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  check(fd_ >= 0, ErrorKind::Usage, "AtomicFile", path_.string(), ": write after commit()");
  if (const int code = write_all(fd_, static_cast<const char*>(data), bytes)) {
    detail::throw_write_error(
        "AtomicFile", path_,
        with_commas(static_cast<int64_t>(bytes)) + " bytes cannot be written after " + with_commas(static_cast<int64_t>(size_)), code);
  }
  hasher_.update(data, bytes);
  size_ += bytes;
}

void AtomicFile::commit() {
  check(fd_ >= 0, ErrorKind::Usage, "AtomicFile", path_.string(), ": second commit()");
  const auto size = with_commas(static_cast<int64_t>(size_));
  if (const int code = durability_ == Durability::Synced ? detail::sync_descriptor(fd_) : 0)
    detail::throw_write_error("AtomicFile", path_, size + " bytes cannot be synchronised to the disk", code);
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 && errno != EINTR) detail::throw_write_error("AtomicFile", path_, "cannot be closed after " + size + " bytes", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    detail::throw_write_error("AtomicFile", path_, "the new file cannot be moved into place", errno);
  temporary_.clear();
  if (durability_ == Durability::Synced) detail::sync_folder(detail::folder_of(path_));
}

WrittenFile write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
  return {file.size(), file.checksum()};
}

ReadableFile::ReadableFile(std::filesystem::path path, ErrorKind kind) : path_(std::move(path)), kind_(kind) {
  // O_NONBLOCK, because opening a pipe would otherwise wait for a writer.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw Error(kind_, "file", path_.string() + ": cannot be opened: " + std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(fd_, -1));
    throw Error(kind_, "file",
                path_.string() + (known && S_ISDIR(status.st_mode) ? ": is a folder, not a file" : ": is not a regular file"));
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

ReadableFile::~ReadableFile() {
  if (fd_ >= 0) ::close(fd_);
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)), kind_(other.kind_), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

ReadableFile& ReadableFile::operator=(ReadableFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(kind_, other.kind_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void ReadableFile::read(uint64_t offset, void* out, size_t bytes) const {
  check(offset <= size_ && bytes <= size_ - offset, kind_, "file", path_.string(), ": ", bytes, " bytes at offset ", offset,
        " are required, but the file has ", size_, " bytes; it is truncated or damaged");
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const auto done = ::pread(fd_, to, std::min(bytes, kLargestCall), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw Error(kind_, "file", path_.string() + ": cannot be read: " + std::strerror(errno));
    check(done > 0, kind_, "file", path_.string(), ": became shorter while it was read");
    to += done;
    offset += static_cast<uint64_t>(done);
    bytes -= static_cast<size_t>(done);
  }
}

std::string ReadableFile::read(uint64_t offset, size_t bytes) const {
  check(offset <= size_ && bytes <= size_ - offset, kind_, "file", path_.string(), ": ", bytes, " bytes at offset ", offset,
        " are required, but the file has ", size_, " bytes; it is truncated or damaged");
  std::string out(bytes, '\0');
  read(offset, out.data(), bytes);
  return out;
}

std::string read_file(const std::filesystem::path& path, uint64_t max_bytes, ErrorKind kind) {
  const ReadableFile file(path, kind);
  check(file.size() <= max_bytes, kind, "file", path.string(), ": ", file.size(), " bytes; allowed: at most ", max_bytes);
  return file.read(0, file.size());
}

}  // namespace npu_train
