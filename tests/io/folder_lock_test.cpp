#include "testing.hpp"

#include "npu_train/io/folder_lock.hpp"

#include <atomic>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include <linux/magic.h>
#include <sys/wait.h>

#include "happens.hpp"
#include "io/shared_disk.hpp"
#include "npu_train/io/json.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

std::string lock_text(const TempDir& dir) {
  std::stringstream text;
  text << std::ifstream(dir / FolderLock::kFile).rdbuf();
  return text.str();
}

/// Writes a lock's file, with some members changed.
void write_lock(const TempDir& dir, const std::vector<std::pair<std::string, Json>>& changes) {
  Json holder = [&] {
    const FolderLock lock(dir.path());
    return load_json(dir / FolderLock::kFile);
  }();
  for (const auto& [key, value] : changes) holder.set(key, value);
  std::ofstream(dir / FolderLock::kFile, std::ios::trunc) << holder.dump();
}

/// A process that runs `body` and then waits until it is killed.
class Other {
 public:
  template <class Fn>
  explicit Other(Fn&& body) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body();
      const char done = 1;
      if (::write(ready[1], &done, 1) == 1) ::pause();
      ::_exit(0);
    }
    char done = 0;
    ::close(ready[1]);
    REQUIRE(::read(ready[0], &done, 1) == 1);
    ::close(ready[0]);
  }
  ~Other() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  int pid() const { return pid_; }

 private:
  int pid_ = 0;
};

std::string host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::ptrdiff_t thread_count() { return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()); }

void refused(const TempDir& dir, const std::string& words, const FolderLockOptions& options = {}) {
  const auto error = error_of([&] { FolderLock(dir.path(), options); });
  CHECK(error.kind() == ErrorKind::Checkpoint);
  CHECK_MESSAGE(has(error.what(), words), error.what());
}

}  // namespace

TEST_CASE("one object of a process has the lock, and it is gone with it") {
  for (const bool kernel_locks : {true, false}) {
    CAPTURE(kernel_locks);
    const TempDir dir;
    const FolderLockOptions options{.beat = 0.01, .kernel_locks = kernel_locks};
    for (int round = 0; round < 2; ++round) {
      const FolderLock lock(dir.path(), options);
      CHECK(lock.folder() == dir.path());
      refused(dir, dir.path().string() + ": is in use by process " + std::to_string(::getpid()) + " on host " + host() + " since 20",
              options);
      refused(dir, "(this process)", options);
    }
    CHECK(fs::is_empty(dir.path()));
  }
  CHECK(error_of([] { FolderLock("/proc/self"); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("the lock of another process is refused by name and goes when that is killed") {
  for (const bool kernel_locks : {true, false}) {
    CAPTURE(kernel_locks);
    const TempDir dir;
    const FolderLockOptions options{.beat = 0.01, .kernel_locks = kernel_locks};
    Other other([&] { new FolderLock(dir.path(), options); });
    refused(dir, "process " + std::to_string(other.pid()) + " on host " + host(), options);
    other.kill();
    CHECK(fs::exists(dir / FolderLock::kFile));
    const FolderLock lock(dir.path(), options);
    CHECK(has(lock_text(dir), "\"process\": " + std::to_string(::getpid())));
  }
}

TEST_CASE("the lock of the operating system holds whatever the file says, as before its holder wrote it") {
  for (const char* text : {"", "{ no lock"}) {
    CAPTURE(text);
    const TempDir dir;
    const FolderLock lock(dir.path(), {.beat = 1e6, .shared = false});
    std::ofstream(dir / FolderLock::kFile, std::ios::trunc) << text;
    refused(dir, ": is in use by another process", {.shared = false});
  }
}

TEST_CASE("a file that names a living process does not hold the lock, and a longer one is replaced completely") {
  const TempDir dir;
  write_lock(dir, {{"padding", std::string(1000, 'x')}});  // written by this process, which is alive
  const FolderLock lock(dir.path(), {.shared = false});
  CHECK(load_json(dir / FolderLock::kFile).find("padding") == nullptr);
  refused(dir, "(this process)", {.shared = false});
}

TEST_CASE("a lock leaves a file alone that took the place of its own") {
  const TempDir dir;
  {
    const FolderLock lock(dir.path(), {.shared = false});
    fs::rename(dir / FolderLock::kFile, dir / "moved");
    std::ofstream(dir / FolderLock::kFile) << "another";
  }
  CHECK(lock_text(dir) == "another");
}

TEST_CASE("a child after fork() that ends does not end its parent's lock") {
  const TempDir dir;
  auto lock = std::make_unique<FolderLock>(dir.path());
  const int child = ::fork();
  if (child == 0) {
    lock.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  refused(dir, "(this process)");
}

TEST_CASE("a child after fork() that lives on does not hold the lock of its parent, which was killed") {
  const TempDir dir;
  int told[2];
  REQUIRE(::pipe(told) == 0);
  Other parent([&] {
    new FolderLock(dir.path());
    if (::fork() != 0) return;
    const int self = ::getpid();  // written by the child, after its fork() has returned
    if (::write(told[1], &self, sizeof self) == sizeof self) ::pause();
    ::_exit(1);
  });
  struct Child {
    ~Child() {
      if (pid > 0) ::kill(pid, SIGKILL);
    }
    int pid = 0;
  } child;
  REQUIRE(::read(told[0], &child.pid, sizeof child.pid) == sizeof child.pid);
  refused(dir, "process " + std::to_string(parent.pid()));
  parent.kill();
  {
    const FolderLock lock(dir.path());
    CHECK(has(lock_text(dir), "\"process\": " + std::to_string(::getpid())));
  }
  ::close(told[0]);
  ::close(told[1]);
}

TEST_CASE("without locks of the operating system a process is distinguished from a later one with its number") {
  const TempDir dir;
  write_lock(dir, {{"started", "1"}});
  const FolderLock lock(dir.path(), {.beat = 0.01, .kernel_locks = false});
  refused(dir, "(this process)", {.kernel_locks = false});
}

TEST_CASE("where other machines see the folder, a holder there that gives signs of life is refused") {
  for (const bool kernel_locks : {true, false}) {
    CAPTURE(kernel_locks);
    const TempDir dir;
    write_lock(dir, {{"machine", "another"}, {"host", "far"}, {"process", 7}});
    std::atomic<bool> ended = false;
    std::thread far([&, holder = load_json(dir / FolderLock::kFile)]() mutable {
      for (int64_t beat = 1; !ended; ++beat) {
        holder.set("beat", beat);
        save_json(dir / FolderLock::kFile, holder);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    refused(dir, "process 7 on host far", {.beat = 0.01, .patience = 600, .shared = true, .kernel_locks = kernel_locks});
    ended = true;
    far.join();
  }
}

TEST_CASE("where other machines see the folder, a holder there without a sign of life is dead; on a disk of this one at once") {
  const TempDir dir;
  write_lock(dir, {{"machine", "another"}, {"host", "far"}});
  { const FolderLock lock(dir.path(), {.beat = 0.01, .patience = 0.05, .shared = true}); }
  write_lock(dir, {{"machine", "another"}, {"host", "far"}});
  { const FolderLock lock(dir.path(), {.patience = 1e6, .shared = false}); }
  std::ofstream(dir / FolderLock::kFile) << "{ no lock";
  const FolderLock lock(dir.path());
  refused(dir, "(this process)");
}

TEST_CASE("signs of life continue while the lock is held") {
  const TempDir dir;
  const FolderLock lock(dir.path(), {.beat = 0.005, .shared = true});
  const auto first = lock_text(dir);
  REQUIRE(happens([&] { return lock_text(dir) != first; }));
  refused(dir, "(this process)", {.shared = true});
}

TEST_CASE("a holder that was stopped while another machine took the lock over notices it, and leaves the lock alone") {
  const TempDir dir;
  const FolderLockOptions options{.beat = 0.01, .patience = 0.2, .shared = true, .kernel_locks = false};
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const int child = ::fork();
  if (child == 0) {
    const auto without_lock = thread_count();
    const FolderLock lock(dir.path(), options);
    const auto mine = "\"process\": " + std::to_string(::getpid()) + ",";
    const char byte = 0;
    if (thread_count() == without_lock || ::write(ready[1], &byte, 1) != 1 || ::raise(SIGSTOP) != 0) ::_exit(1);
    // The heartbeat thread either ends, or overwrites the file.
    if (!happens([&] { return thread_count() == without_lock || has(lock_text(dir), mine); }) || has(lock_text(dir), mine)) ::_exit(3);
    const auto error = error_of([&] { lock.check_held(); });
    ::_exit(error.kind() == ErrorKind::Checkpoint && has(error.what(), "was taken over by process") ? 0 : 2);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  auto holder = load_json(dir / FolderLock::kFile);
  holder.set("machine", "another");  // as another machine would see it
  std::ofstream(dir / FolderLock::kFile, std::ios::trunc) << holder.dump();
  auto rarely = options;
  rarely.beat = 3600;  // so that the file still shows what the child writes
  const FolderLock lock(dir.path(), rarely);
  ::kill(child, SIGCONT);
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  lock.check_held();
  CHECK(has(lock_text(dir), "\"process\": " + std::to_string(::getpid())));
}

TEST_CASE("disks that other machines may use are shared: network disks and those of unknown kinds") {
  constexpr uint32_t kSmb = 0xFF534D42, kSmb2 = 0xFE534D42, kFuse = 0x65735546, kLustre = 0x0BD00BD0, kCeph = 0x00C36400;
  for (const uint32_t type : {uint32_t{NFS_SUPER_MAGIC}, kSmb, kSmb2, kFuse, kLustre, kCeph, uint32_t{0x12345678}}) {
    CAPTURE(type);
    CHECK(npu_train::detail::is_shared_disk(type));
  }
  for (const uint32_t type : {uint32_t{EXT4_SUPER_MAGIC}, uint32_t{XFS_SUPER_MAGIC}, uint32_t{BTRFS_SUPER_MAGIC}, uint32_t{TMPFS_MAGIC},
                              uint32_t{OVERLAYFS_SUPER_MAGIC}, uint32_t{F2FS_SUPER_MAGIC}}) {
    CAPTURE(type);
    CHECK_FALSE(npu_train::detail::is_shared_disk(type));
  }
}
