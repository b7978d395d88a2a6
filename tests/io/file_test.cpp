#include "testing.hpp"

#include "npu_train/io/file.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <vector>

#include "only_if.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::only_if;
using npu_train::testing::TempDir;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// Runs `fn` in a child process, which ends without destructors. Returns the wait status.
int in_child(const std::function<int()>& fn) {
  const auto pid = ::fork();
  if (pid == 0) {
    int code = 99;
    try {
      code = fn();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

bool can_mount() {
  const TempDir dir;
  return ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") == 0 && ::umount(dir.path().c_str()) == 0;
}

}  // namespace

TEST_CASE("a file appears completely, or not at all") {
  const TempDir dir;
  const auto path = dir / "a.bin";
  {
    AtomicFile file(path);
    file.write("hello ");
    file.write("world");
    CHECK_FALSE(fs::exists(path));
    CHECK(file.size() == 11);
    CHECK(file.checksum() == hash64("hello world"));
    file.commit();
    CHECK_THROWS_AS(file.write("more"), Error);
    CHECK_THROWS_AS(file.commit(), Error);
  }
  CHECK(read_file(path, kMiB) == "hello world");
  {
    AtomicFile file(path);
    file.write("given up");
  }
  CHECK(read_file(path, kMiB) == "hello world");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"a.bin"});
  const auto written = write_file_atomic(path, "");
  CHECK(written.bytes == 0);
  CHECK(read_file(path, kMiB).empty());
}

TEST_CASE("a file that is only renamed also appears completely") {
  const TempDir dir;
  put(dir / "a.bin", "old");
  {
    AtomicFile file(dir / "a.bin", Durability::Renamed);
    file.write("new");
    CHECK(read_file(dir / "a.bin", kMiB) == "old");
    file.commit();
    CHECK_THROWS_AS(file.commit(), Error);
  }
  CHECK(read_file(dir / "a.bin", kMiB) == "new");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"a.bin"});
}

TEST_CASE("a process that is killed before the rename leaves the old file") {
  const TempDir dir;
  const auto path = dir / "a.bin";
  put(path, "old");
  const int status = in_child([&] {
    AtomicFile file(path);
    file.write("new");
    ::raise(SIGKILL);
    return 0;
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(read_file(path, kMiB) == "old");
  REQUIRE(names_in(dir.path()).size() == 2);
  CHECK(is_temporary_name(names_in(dir.path())[0]));
  {
    AtomicFile mine(dir / "b.bin");  // a temporary file of a living process stays
    CHECK(remove_leftovers(dir.path()) == 1);
    mine.commit();
  }
  CHECK(names_in(dir.path()) == std::vector<std::string>{"a.bin", "b.bin"});
  CHECK(remove_leftovers(dir / "no such folder") == 0);
}

TEST_CASE("only our own names count as temporary") {
  for (const char* name :
       {"a.tmp-abcdef-1-0", ".tmp-abcdef-1-0", ".a.tmp-abc-1-0", ".a.tmp-abcdef-x-0", ".a.tmp-abcdef-1-", ".a.tmp-abcdef-1", ".a", ""}) {
    CAPTURE(name);
    CHECK_FALSE(is_temporary_name(name));
  }
  CHECK(is_temporary_name(".a.tmp-abcdef-12-0"));
}

TEST_CASE("a file larger than the limit is an Error, not a signal") {
  const TempDir dir;
  const auto path = dir / "a.bin";
  put(path, "old");
  const int status = in_child([&] {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomic(path, std::string(10000, 'x'));
    } catch (const Error& e) {
      const bool good = e.kind() == ErrorKind::Checkpoint && has(e.what(), "10,000 bytes") && has(e.what(), "ulimit");
      return good ? 7 : 8;
    }
    return 9;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(read_file(path, kMiB) == "old");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"a.bin"});
}

TEST_CASE("a full disk is reported as an Error, and the old file stays" *
          only_if(can_mount(), "mounting a small file system is refused (only root may)")) {
  const TempDir dir;
  REQUIRE(::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") == 0);
  put(dir / "a.bin", "old");
  const auto e = error_of([&] { write_file_atomic(dir / "a.bin", std::string(200'000, 'x')); });
  const auto folder = error_of([&] {
    AtomicDirectory made(dir / "folder");
    write_file_atomic(made.temporary() / "x", std::string(200'000, 'x'));
    made.commit();
  });
  const auto names = names_in(dir.path());
  const auto content = read_file(dir / "a.bin", kMiB);
  ::mount("tmpfs", dir.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k");
  const auto read_only = error_of([&] { write_file_atomic(dir / "a.bin", "new"); });
  ::umount(dir.path().c_str());
  CHECK(e.kind() == ErrorKind::Checkpoint);
  CHECK(has(e.what(), "200,000 bytes"));
  CHECK(has(e.what(), "No space left"));
  CHECK(has(e.what(), "hint: free some space"));
  CHECK(folder.kind() == ErrorKind::Checkpoint);
  CHECK(names == std::vector<std::string>{"a.bin"});
  CHECK(content == "old");
  CHECK(read_only.kind() == ErrorKind::Checkpoint);
  CHECK(has(read_only.what(), "Read-only"));
}

TEST_CASE("places that cannot be written") {
  const TempDir dir;
  fs::create_directory(dir / "folder");
  put(dir / "file", "x");
  struct Row {
    fs::path path;
    const char* part;
  };
  for (const auto& row : {Row{dir / "no/such/a.bin", "create the folder first"}, Row{dir / "folder", "is not a file"},
                          Row{dir / "file/a", "a part of the path is a file"}, Row{"/proc/npu_train_test", "choose a writable folder"},
                          Row{"/dev/full", "is not a file"}, Row{dir / std::string(300, 'a'), "too long"}}) {
    CAPTURE(row.path);
    const auto e = error_of([&] { write_file_atomic(row.path, "x"); });
    CHECK(e.kind() == ErrorKind::Checkpoint);
    CAPTURE(e.what());
    CHECK(has(e.what(), row.part));
  }
  CHECK(error_of([] { AtomicFile file(""); }).kind() == ErrorKind::Usage);
  CHECK_THROWS_AS(make_folder(dir / "file/below"), Error);
  CHECK_THROWS_AS(make_folder(dir / "file"), Error);
  CHECK(has(error_of([] { make_folder("/proc/npu_train/test"); }).what(), "choose a writable folder"));
  make_folder(dir / "x/y/z");
  CHECK(fs::is_directory(dir / "x/y/z"));
}

TEST_CASE("reading: missing, a folder, a pipe, too large, truncated") {
  const TempDir dir;
  put(dir / "a", "0123456789");
  ::mkfifo((dir / "pipe").c_str(), 0600);
  CHECK(error_of([&] { read_file(dir / "b", 100); }).kind() == ErrorKind::Data);
  CHECK(error_of([&] { read_file(dir / "b", 100, ErrorKind::Checkpoint); }).kind() == ErrorKind::Checkpoint);
  CHECK(has(error_of([&] { read_file(dir.path(), 100); }).what(), "is a folder"));
  CHECK(has(error_of([&] { read_file(dir / "pipe", 100); }).what(), "not a regular file"));
  CHECK(has(error_of([&] { read_file(dir / "a", 9); }).what(), "10 bytes; allowed: at most 9"));
  ReadableFile file(dir / "a");
  CHECK(file.read(3, 4) == "3456");
  CHECK(file.read(10, 0).empty());
  for (const auto& [offset, bytes] : {std::pair<uint64_t, size_t>{0, 11}, {10, 1}, {11, 0}, {~uint64_t{0}, 2}, {5, ~size_t{0}}}) {
    CHECK_THROWS_AS(file.read(offset, bytes), Error);
  }
  CHECK_THROWS_AS(file.read(11, nullptr, 0), Error);
  fs::resize_file(dir / "a", 5);
  CHECK(has(error_of([&] { file.read(0, 10); }).what(), "became shorter"));
  auto moved = std::move(file);
  CHECK(moved.read(0, 5) == "01234");
}

TEST_CASE("a folder appears completely, and replaces the previous one") {
  const TempDir dir;
  for (const char* text : {"one", "two"}) {
    AtomicDirectory made(dir / "last/");
    write_file_atomic(made.temporary() / "x", text);
    fs::create_directory(made.temporary() / "sub");
    put(made.temporary() / "sub/y", text);
    made.commit();
    CHECK_THROWS_AS(made.commit(), Error);
    CHECK(read_file(dir / "last/x", kMiB) == text);
    CHECK(read_file(dir / "last/sub/y", kMiB) == text);
  }
  {
    AtomicDirectory given_up(dir / "last");
    write_file_atomic(given_up.temporary() / "x", "three");
  }
  CHECK(read_file(dir / "last/x", kMiB) == "two");
  const int status = in_child([&] {
    AtomicDirectory killed(dir / "last");
    write_file_atomic(killed.temporary() / "x", "four");
    ::raise(SIGKILL);
    return 0;
  });
  CHECK(WIFSIGNALED(status));
  CHECK(read_file(dir / "last/x", kMiB) == "two");
  CHECK(remove_leftovers(dir.path()) == 1);
  CHECK(names_in(dir.path()) == std::vector<std::string>{"last"});
  put(dir / "file", "x");
  CHECK_THROWS_AS(AtomicDirectory(dir / "file"), Error);
  CHECK_THROWS_AS(AtomicDirectory(dir / "no/such"), Error);
  CHECK_THROWS_AS(AtomicDirectory("/"), Error);
}

TEST_CASE("what a dead process of the same number left behind is passed by") {
  const TempDir dir;
  std::string next;
  {
    AtomicDirectory first(dir / "x");
    next = first.temporary().string();
  }
  const auto dash = next.rfind('-');
  const auto number = std::stoll(next.substr(dash + 1));
  for (int i = 1; i <= 3; ++i) fs::create_directory(next.substr(0, dash + 1) + std::to_string(number + i));
  AtomicDirectory made(dir / "x");
  made.commit();
  CHECK(fs::is_directory(dir / "x"));
}

TEST_CASE("names from files stay inside their folder") {
  const TempDir dir;
  fs::create_directories(dir / "in/sub");
  put(dir / "secret", "x");
  put(dir / "in/a", "x");
  fs::create_symlink(dir / "secret", dir / "in/link");
  fs::create_directory_symlink(dir.path(), dir / "in/up");
  fs::create_symlink(dir / "nothing", dir / "in/broken");
  fs::create_symlink(dir / "in/a", dir / "in/good");
  const auto in = dir / "in";
  CHECK(safe_join(in, "a") == in / "a");
  CHECK(safe_join(in, "sub/new.bin") == in / "sub/new.bin");
  CHECK(safe_join(in, "good") == in / "good");
  CHECK(safe_join(in, "a..b") == in / "a..b");
  for (const auto& bad : {std::string(""), std::string("/etc/passwd"), std::string(".."), std::string("../secret"),
                          std::string("sub/../../secret"), std::string("."), std::string("a//b"), std::string("sub/"), std::string("link"),
                          std::string("up/secret"), std::string("broken"), std::string("a\0b", 3), std::string(5000, 'a')}) {
    CAPTURE(bad);
    CHECK(error_of([&] { safe_join(in, bad); }).kind() == ErrorKind::Checkpoint);
  }
}
