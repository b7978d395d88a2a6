#include "testing.hpp"

#include "npu_train/core/append_file.hpp"

#include <fstream>
#include <sstream>

#include <sys/resource.h>

#include "npu_train/core/log.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Limits the size of files: a write beyond the limit fails in the middle of a piece, as on a full disk.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("pieces are appended to the existing content") {
  const TempDir dir;
  const auto path = (dir / "a.log").string();
  for (int run = 0; run < 2; ++run) {
    AppendFile file(path);
    file.write("one\n");
    CHECK(text_of(path) == (run == 0 ? "one\n" : "one\ntwo\none\n"));  // without buffering
    file.write("two\n");
  }
  CHECK(error_of([&] { AppendFile((dir / "no/such.log").string()); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("a piece that the disk accepts only in part is not written at all, and a later one may succeed") {
  const TempDir dir;
  const auto path = (dir / "a.log").string();
  AppendFile file(path);
  file.write("12345678\n");
  {
    const SizeLimit limit(15);  // a write beyond the limit would raise a signal that ends the process
    CHECK(error_of([&] { file.write("too long for it\n"); }).kind() == ErrorKind::Checkpoint);
    CHECK(text_of(path) == "12345678\n");
    file.write("short\n");
    CHECK(has(error_of([&] { file.write("x"); }).what(), path + ": 1 bytes cannot be written: File too large"));
  }
  file.write("more than before\n");
  CHECK(text_of(path) == "12345678\nshort\nmore than before\n");
}

TEST_CASE("a log file that accepts no more lines loses them, and the other sink is notified once") {
  const TempDir dir;
  const auto path = (dir / "train.log").string();
  std::string said;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    said += std::string(level == LogLevel::Warning ? "w:" : "") + std::string(text) + "\n";
  });
  const auto file = make_file_sink(path);
  const auto warning = "w:[log] " + path + ": ";
  SUBCASE("as a tee") {
    const ScopedLogTee tee(file);
    log_info("kept");
    const SizeLimit limit(40);
    log_info("lost");
    log_info("lost too");
    CHECK(said.find("kept\nlost\n" + warning) == 0);
    CHECK(has(said, "\nlost too\n"));
  }
  SUBCASE("called by itself") {
    file(LogLevel::Info, "kept");
    const SizeLimit limit(40);
    file(LogLevel::Info, "lost");
    file(LogLevel::Info, "lost too");
    CHECK(said.find(warning) == 0);
  }
  CHECK(said.find(warning) == said.rfind(warning));
  CHECK(has(text_of(path), " kept\n"));
  CHECK_FALSE(has(text_of(path), "lost"));
}
