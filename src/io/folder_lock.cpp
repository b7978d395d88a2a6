#include "npu_train/io/folder_lock.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "io/file_error.hpp"
#include "io/lock_holder.hpp"
#include "io/shared_disk.hpp"
#include "io/temporary_name.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace fs = std::filesystem;
namespace detail {
enum class KernelLock { Taken, Busy, None };
}
namespace {

constexpr const char* kLock = "run folder";
constexpr uint64_t kLargestFile = 4096;

using Seconds = std::chrono::duration<double>;
using detail::KernelLock;

bool is_shared(int fd) {
  struct statfs disk {};
  if (::fstatfs(fd, &disk) != 0) return true;
  return detail::is_shared_disk(static_cast<uint32_t>(disk.f_type));
}

/// Locks the open file instead of the process (OFD lock): two objects of one process exclude each other, and closing another descriptor of
/// the file does not release the lock. The lock covers one byte far after the content, because on SMB other processes cannot read a locked
/// range.
KernelLock lock_file(int fd) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = off_t{1} << 40;
  range.l_len = 1;
  if (::fcntl(fd, F_OFD_SETLK, &range) == 0) return KernelLock::Taken;
  if (errno == EAGAIN || errno == EACCES) return KernelLock::Busy;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return KernelLock::Taken;
  return errno == EWOULDBLOCK ? KernelLock::Busy : KernelLock::None;
}

std::string content_of(const fs::path& path) {
  try {
    return read_file(path, kLargestFile);
  } catch (const Error&) {
    return "";
  }
}

bool is_named(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

// The open lock files of this process. An OFD lock belongs to the open file: a forked child would share the lock and keep it when the
// parent is killed. Therefore each child closes its copies at once.
class LockFiles {
 public:
  static LockFiles& all() {
    static auto* const files = new LockFiles;  // never destroyed: a thread may fork while the process ends
    return *files;
  }

  int open(const fs::path& path) {
    const std::lock_guard lock(mutex_);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) open_.push_back(fd);
    return fd;
  }
  void close(int fd) {
    const std::lock_guard lock(mutex_);
    std::erase(open_, fd);
    ::close(fd);
  }

 private:
  LockFiles() {
    ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); }, [] { all().close_in_child(); });
  }
  void close_in_child() {
    for (const int fd : open_) ::close(fd);
    open_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<int> open_;
};

}  // namespace

struct FolderLock::Impl {
  fs::path folder, path;
  FolderLockOptions options;
  int fd = -1;
  KernelLock kernel = KernelLock::None;
  bool shared = false;
  detail::LockHolder self = detail::this_holder();
  int owner = ::getpid();  // a forked child has a copy of this object, but not the lock, because LockFiles closes the file there

  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::thread heartbeats;

  ~Impl();
  bool take();
  bool watch(const std::string& found) const;
  int write_holder() const;
  void confirm() const;
  std::optional<detail::LockHolder> successor() const;
  void beat();
  [[noreturn]] void refuse(const std::string& found) const;
};

void FolderLock::Impl::refuse(const std::string& found) const {
  const auto holder = detail::parse_holder(found);
  const bool here = holder && holder->machine == self.machine && holder->processes == self.processes && holder->process == self.process;
  throw Error(ErrorKind::Checkpoint, kLock,
              folder.string() + ": is in use by " + (holder ? holder->str() : "another process") + (here ? " (this process)" : "") +
                  "; only one run at a time may write to it",
              "wait for the end of that run, stop it, or start a separate run: without --resume, or with another output.name");
}

/// Returns true if a holder on another machine, or in another container, writes a heartbeat.
bool FolderLock::Impl::watch(const std::string& found) const {
  const auto holder = detail::parse_holder(found);
  log_info("[", kLock, "] ", folder.string(), ": is locked by ", holder ? holder->str() : "another process", "; waiting up to ",
           options.patience, " s for a sign of life");
  const auto end = std::chrono::steady_clock::now() + Seconds(options.patience);
  const auto pause = Seconds(std::clamp(options.beat / 10, 0.001, 0.5));
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(pause);
    const auto now = content_of(path);
    if (!now.empty() && now != found) return true;
  }
  return false;
}

/// Tries to take the lock. Returns false if the file has been removed in the meantime; the caller then tries again.
bool FolderLock::Impl::take() {
  fd = LockFiles::all().open(path);
  if (fd < 0) detail::throw_write_error(kLock, path, "cannot be created", errno);
  shared = options.shared.value_or(is_shared(fd));
  kernel = options.kernel_locks ? lock_file(fd) : KernelLock::None;
  const auto found = content_of(path);
  if (!is_named(fd, path)) return false;
  if (kernel == KernelLock::Busy) refuse(found);
  if (found.empty()) return true;
  const auto before = detail::parse_holder(found);
  if (before && before->machine == self.machine) {
    if (kernel == KernelLock::Taken) return true;  // both processes have the same kernel, even in containers, so its lock decides
    const auto living = detail::lives(*before);
    if (living ? *living : watch(found)) refuse(content_of(path));
    return true;
  }
  if (shared && watch(found)) refuse(content_of(path));
  return true;
}

int FolderLock::Impl::write_holder() const {
  const auto text = self.file();
  const auto done = ::pwrite(fd, text.data(), text.size(), 0);
  if (done != static_cast<ssize_t>(text.size())) return done < 0 ? errno : ENOSPC;
  if (::ftruncate(fd, static_cast<off_t>(text.size())) != 0) return errno;
  return shared ? detail::sync_descriptor(fd) : 0;
}

/// Confirms the lock if there are no kernel locks; then the last process that wrote the file holds the lock.
void FolderLock::Impl::confirm() const {
  std::this_thread::sleep_for(Seconds(std::min(1.0, options.beat)));
  if (const auto now = content_of(path); now != self.file()) refuse(now);
}

/// Returns the process that has taken over the lock, if any.
std::optional<detail::LockHolder> FolderLock::Impl::successor() const {
  const auto holder = detail::parse_holder(content_of(path));
  return holder && holder->str() != self.str() ? holder : std::nullopt;
}

void FolderLock::Impl::beat() {
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, Seconds(options.beat), [&] { return ended; })) {
    if (successor()) return;
    ++self.beat;
    write_holder();  // also retries after a temporary failure of the disk
  }
}

FolderLock::Impl::~Impl() {
  if (owner != ::getpid()) {
    if (heartbeats.joinable()) heartbeats.detach();  // the thread does not exist in the child
    return;
  }
  if (heartbeats.joinable()) {
    {
      const std::lock_guard lock(mutex);
      ended = true;
    }
    changed.notify_all();
    heartbeats.join();
  }
  if (fd >= 0) LockFiles::all().close(fd);
}

FolderLock::FolderLock(fs::path folder, const FolderLockOptions& options) : impl_(std::make_unique<Impl>()) {
  auto& self = *impl_;
  self.folder = std::move(folder);
  self.path = self.folder / kFile;
  self.options = options;
  while (!self.take()) LockFiles::all().close(std::exchange(self.fd, -1));
  const int code = self.write_holder();
  if (code != 0 && self.kernel == KernelLock::None) detail::throw_write_error(kLock, self.path, "cannot be written", code);
  if (code != 0)
    log_warning("[", kLock, "] ", self.path.string(), ": cannot be written: ", std::strerror(code), "; the lock does not name this run");
  if (self.kernel == KernelLock::None) self.confirm();
  if (self.shared || self.kernel == KernelLock::None) self.heartbeats = std::thread([&self] { self.beat(); });
}

FolderLock::~FolderLock() {
  // Unlinks while the lock is held. Otherwise another process could open the file, and then hold the lock of a removed file.
  auto& self = *impl_;
  if (self.owner != ::getpid()) return;
  const auto named = detail::parse_holder(content_of(self.path));
  const bool mine = self.kernel == KernelLock::Taken || (named && named->str() == self.self.str());
  if (mine && is_named(self.fd, self.path)) ::unlink(self.path.c_str());
}

const fs::path& FolderLock::folder() const { return impl_->folder; }

void FolderLock::check_held() const {
  if (const auto holder = impl_->successor())
    throw Error(ErrorKind::Checkpoint, kLock,
                impl_->folder.string() + ": was taken over by " + holder->str() + " while this process gave no sign of life",
                "end this run; the other one continues from its newest checkpoint");
}

}  // namespace npu_train
