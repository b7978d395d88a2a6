#include "npu_train/io/folder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>

#include "io/file_error.hpp"
#include "io/temporary_name.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMiddle = ".tmp-";

// Returns a name for the machine, because two machines that share a disk may have processes with the same number.
const std::string& machine_tag() {
  static const std::string tag = hex64(hash64(host_name())).substr(0, 6);
  return tag;
}

struct TemporaryName {
  std::string_view of;  // final name of the file or folder
  std::string machine;
  int process = 0;
};

// Parses ".<name>.tmp-<machine>-<process>-<number>".
bool parse_temporary(std::string_view name, TemporaryName& out) {
  const auto at = name.rfind(kMiddle);
  if (name.empty() || name[0] != '.' || at == std::string_view::npos || at < 2) return false;
  out.of = name.substr(1, at - 1);
  auto rest = name.substr(at + kMiddle.size());
  const auto first = rest.find('-');
  if (first != 6) return false;
  out.machine = rest.substr(0, first);
  rest.remove_prefix(first + 1);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out.process);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '-' || out.process <= 0) return false;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
  return !rest.empty() && rest.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_abandoned(const fs::path& path, const TemporaryName& name) {
  if (name.machine == machine_tag()) return name.process != ::getpid() && ::kill(name.process, 0) != 0 && errno == ESRCH;
  std::error_code error;
  const auto changed = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - changed > std::chrono::hours(24);
}

void sync_tree(const fs::path& root) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const auto status = it->symlink_status(error);
    if (fs::is_directory(status)) {
      detail::sync_folder(it->path());
    } else if (fs::is_regular_file(status)) {
      const int fd = ::open(it->path().c_str(), O_RDONLY | O_CLOEXEC);
      const int code = fd < 0 ? errno : detail::sync_descriptor(fd);
      if (fd >= 0) ::close(fd);
      if (code != 0) detail::throw_write_error("AtomicDirectory", it->path(), "cannot be synchronised to the disk", code);
    }
  }
  if (error) detail::throw_write_error("AtomicDirectory", root, "cannot be listed", error.value());
  detail::sync_folder(root);
}

// Exchanges the folders `path` and `fresh`; the old folder is then at `fresh`.
void exchange(const fs::path& fresh, const fs::path& path) {
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS)
    detail::throw_write_error("AtomicDirectory", path, "the new folder cannot be moved into place", errno);
#endif
  // On a file system that cannot exchange names, `path` is missing for a moment, but no data is lost.
  const auto aside = detail::temporary_beside(path);
  if (::rename(path.c_str(), aside.c_str()) != 0)
    detail::throw_write_error("AtomicDirectory", path, "the old folder cannot be renamed", errno);
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::rename(aside.c_str(), path.c_str());
    detail::throw_write_error("AtomicDirectory", path, "the new folder cannot be moved into place", code);
  }
  ::rename(aside.c_str(), fresh.c_str());
}

}  // namespace

namespace detail {

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

fs::path temporary_beside(const fs::path& path) {
  static std::atomic<uint64_t> number = 0;
  std::string name = ".";
  name += path.filename().string();
  name += kMiddle;
  name += machine_tag() + "-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
  return folder_of(path) / name;
}

int sync_descriptor(int fd) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    return errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  }
  return 0;
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EACCES) return;  // the folder is writable but not readable
    throw_write_error("file", folder, "cannot be opened", errno);
  }
  const int code = sync_descriptor(fd);
  ::close(fd);
  if (code != 0) throw_write_error("file", folder, "its entries cannot be synchronised to the disk", code);
}

}  // namespace detail

AtomicDirectory::AtomicDirectory(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // for "a/b/"
  check(path_.has_filename() && path_.filename() != "." && path_.filename() != "..", ErrorKind::Usage, "AtomicDirectory", "'",
        path_.string(), "' does not end in a folder name");
  std::error_code ignored;
  const auto status = fs::symlink_status(path_, ignored);
  check(!fs::exists(status) || fs::is_directory(status), ErrorKind::Checkpoint, "AtomicDirectory", path_.string(),
        ": exists and is not a folder; hint: choose another name");
  for (int tries = 0; temporary_.empty(); ++tries) {
    const auto temporary = detail::temporary_beside(path_);
    std::error_code error;
    if (fs::create_directory(temporary, error)) temporary_ = temporary;
    // A dead process with the same number (always 1 in containers) may have left this name, so try the next one.
    const bool taken = temporary_.empty() && !error && tries < 1000;
    if (temporary_.empty() && !taken)
      detail::throw_write_error("AtomicDirectory", path_, "cannot be created", error ? error.value() : EEXIST);
  }
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void AtomicDirectory::commit() {
  check(!temporary_.empty(), ErrorKind::Usage, "AtomicDirectory", path_.string(), ": second commit()");
  sync_tree(temporary_);
  std::error_code ignored;
  if (fs::is_directory(fs::symlink_status(path_, ignored))) {
    exchange(temporary_, path_);
    detail::sync_folder(detail::folder_of(path_));
    fs::remove_all(temporary_, ignored);
  } else {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      detail::throw_write_error("AtomicDirectory", path_, "the new folder cannot be moved into place", errno);
    detail::sync_folder(detail::folder_of(path_));
  }
  temporary_.clear();
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  const int code = error == std::errc::no_such_file_or_directory ? EACCES : error.value();  // because mkdir in /proc returns ENOENT
  if (error) detail::throw_write_error("folder", folder, "cannot be created", code);
  check(fs::is_directory(folder, error), ErrorKind::Checkpoint, "folder", folder.string(), ": exists and is not a folder");
}

bool is_temporary_name(std::string_view file_name) {
  TemporaryName ignored;
  return parse_temporary(file_name, ignored);
}

int remove_leftovers(const fs::path& folder, const std::function<bool(std::string_view)>& mine) {
  int removed = 0;
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto file_name = it->path().filename().string();
    TemporaryName name;
    if (parse_temporary(file_name, name) && ((mine && mine(name.of)) || is_abandoned(it->path(), name))) abandoned.push_back(it->path());
  }
  for (const auto& path : abandoned) {
    fs::remove_all(path, error);
    removed += error ? 0 : 1;
  }
  return removed;
}

void remove_folder(const fs::path& folder) {
  const auto aside = detail::temporary_beside(folder);
  if (::rename(folder.c_str(), aside.c_str()) != 0) detail::throw_write_error("folder", folder, "cannot be removed", errno);
  std::error_code error;
  fs::remove_all(aside, error);
  if (error) detail::throw_write_error("folder", folder, "cannot be removed completely", error.value());
}

void set_link(const fs::path& path, const fs::path& target) {
  const auto temporary = detail::temporary_beside(path);
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_directory_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, path, error);
  if (!error) return;
  const auto why = error.message();
  fs::remove(temporary, error);
  throw Error(ErrorKind::Checkpoint, "folder", path.string() + ": the link cannot be written (" + why + ")",
              "the folder must be writable and its file system must support symbolic links");
}

fs::path safe_join(const fs::path& folder, std::string_view name) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorKind::Checkpoint, "file name",
                "'" + std::string(name.substr(0, 200)) + "' " + why + "; only names inside " + folder.string() + " are allowed");
  };
  if (name.empty()) refuse("is empty");
  if (name.size() > 4096) refuse("is too long");
  if (name.find('\0') != std::string_view::npos) refuse("contains a zero byte");
  const fs::path relative(name);
  if (relative.is_absolute()) refuse("is absolute");
  size_t begin = 0;
  while (begin <= name.size()) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") refuse("has an empty part, '.' or '..'");
    begin = end + 1;
  }
  // Resolves links as the system does, then compares.
  std::error_code error;
  const auto root = fs::weakly_canonical(folder.empty() ? fs::path(".") : folder, error);
  if (error) refuse("cannot be resolved");
  const auto target = fs::weakly_canonical(root / relative, error);
  if (error) refuse("cannot be resolved");
  const auto [root_end, rest] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  if (root_end != root.end() || rest == target.end()) refuse("leads out of its folder through a link");
  // Rejects broken links, which weakly_canonical does not resolve, but through which a write would lead out.
  for (auto path = root / relative; path != root; path = path.parent_path()) {
    if (fs::is_symlink(fs::symlink_status(path, error)) && !fs::exists(path, error)) refuse("goes through a broken link");
  }
  return folder / relative;
}

}  // namespace npu_train

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
