#include "testing.hpp"

#include "npu_train/core/log.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::TempDir;

TEST_CASE("without a sink nothing happens; sinks nest by scope") {
  std::vector<std::string> outer, inner;
  log_info("lost");
  {
    const ScopedLogSink a([&](LogLevel, std::string_view m) { outer.emplace_back(m); });
    log_info("one ", 1);
    {
      const ScopedLogSink b(
          [&](LogLevel level, std::string_view m) { inner.emplace_back((level == LogLevel::Warning ? "w:" : "") + std::string(m)); });
      log_warning("two");
    }
    log_debug("three");
  }
  log_info("lost too");
  CHECK(outer == std::vector<std::string>{"one 1", "three"});
  CHECK(inner == std::vector<std::string>{"w:two"});
}

TEST_CASE("one call at a time from many threads") {
  int inside = 0, calls = 0;
  bool overlapped = false;
  const ScopedLogSink sink([&](LogLevel, std::string_view) {
    overlapped |= ++inside != 1;
    ++calls;
    --inside;
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) log_info("x");
    });
  }
  for (auto& t : threads) t.join();
  CHECK(calls == 2000);
  CHECK_FALSE(overlapped);
}

TEST_CASE("a sink may throw, log, or take itself away") {
  int calls = 0;
  {
    const ScopedLogSink sink([&](LogLevel, std::string_view) {
      ++calls;
      log_info("again");  // dropped, so that it does not recurse without end
      throw std::runtime_error("broken sink");
    });
    log_info("x");
    log_info("y");
  }
  CHECK(calls == 2);
  auto before = set_log_sink([&](LogLevel, std::string_view) {
    ++calls;
    set_log_sink({});
  });
  log_info("z");
  log_info("not heard");
  CHECK(calls == 3);
  set_log_sink(std::move(before));
}

TEST_CASE("a warning by key appears once") {
  int calls = 0;
  warn_once("log_test", "without a sink this one does not count");
  const ScopedLogSink sink([&](LogLevel, std::string_view) { ++calls; });
  warn_once("log_test", "a");
  warn_once("log_test", "a");
  warn_once("log_test 2", "b");
  CHECK(calls == 2);
}

TEST_CASE("a file sink appends time-stamped lines and leaves out what is below its level") {
  const TempDir dir;
  const auto path = (dir / "run.log").string();
  for (int run = 0; run < 2; ++run) {
    const auto sink = make_file_sink(path, LogLevel::Warning);
    sink(LogLevel::Info, "quiet");
    sink(LogLevel::Warning, "careful");
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto all = text.str();
  CHECK(all.find("quiet") == std::string::npos);
  const auto first = all.find("warning: careful\n");
  REQUIRE(first == 24);  // length of "2026-01-02 03:04:05.678 "
  CHECK(all.find("warning: careful\n", first + 1) != std::string::npos);
  const auto e = error_of([&] { make_file_sink((dir / "no/such/run.log").string()); });
  CHECK(e.kind() == ErrorKind::Checkpoint);
}

TEST_CASE("a file sink begins a new file where the next line would exceed max_bytes, and keeps so many older ones") {
  const TempDir dir;
  const auto sink = make_file_sink((dir / "run.log").string(), LogLevel::Info, {.max_bytes = 200, .older_files = 2});
  for (int i = 10; i < 50; ++i) sink(LogLevel::Info, "line " + std::to_string(i));  // 32 bytes each, including the time
  std::vector<std::string> kept;
  for (const char* name : {"run.2.log", "run.1.log", "run.log"}) {
    CHECK(std::filesystem::file_size(dir / name) <= 200);
    std::ifstream file(dir / name);
    for (std::string line; std::getline(file, line);) kept.push_back(line.substr(24));
  }
  REQUIRE(kept.size() == 16);  // 6 lines in each full file, 4 in the newest one
  for (size_t i = 0; i < kept.size(); ++i) CHECK(kept[i] == "line " + std::to_string(34 + i));
  CHECK_FALSE(std::filesystem::exists(dir / "run.3.log"));
  const auto e = error_of([&] { make_file_sink((dir / "run.log").string(), LogLevel::Info, {.max_bytes = 0}); });
  CHECK(e.kind() == ErrorKind::Usage);
}

TEST_CASE("a file that accepts no more lines is reported once, to the other sinks") {
  std::vector<std::string> heard;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { heard.emplace_back(text); });
  const ScopedLogTee full(make_file_sink("/dev/full"));
  log_info("a");
  log_info("b");
  REQUIRE(heard.size() == 3);
  CHECK(heard[0] == "a");
  CHECK(heard[1].find("/dev/full: a line cannot be written") != std::string::npos);
  CHECK(heard[2] == "b");
}

TEST_CASE("a tee adds a sink for a scope") {
  std::string all, extra;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { all += text; });
  {
    const ScopedLogTee tee([&](LogLevel, std::string_view text) { extra += text; });
    const ScopedLogTee nothing(LogSink{});
    log_info("a");
  }
  log_info("b");
  CHECK(all == "ab");
  CHECK(extra == "a");
}

TEST_CASE("tees of two threads end in any order") {
  std::string one, two;
  auto first = std::make_unique<ScopedLogTee>([&](LogLevel, std::string_view text) { one += text; });
  const ScopedLogTee second([&](LogLevel, std::string_view text) { two += text; });
  log_info("a");
  first.reset();
  log_info("b");
  CHECK(one == "a");
  CHECK(two == "ab");
}

TEST_CASE("a tee with the number of a run does not get the messages of other runs") {
  std::string one, two, all;
  const auto first = new_log_run(), second = new_log_run();
  const ScopedLogTee of_first([&](LogLevel, std::string_view text) { one += text; }, first);
  const ScopedLogTee of_second([&](LogLevel, std::string_view text) { two += text; }, second);
  const ScopedLogTee of_process([&](LogLevel, std::string_view text) { all += text; });
  {
    const ScopedLogRun scope(first);
    log_info("a");
    {
      const ScopedLogRun inner(second);
      log_info("b");
    }
    std::thread([run = log_run()] {
      const ScopedLogRun taken_over(run);
      log_info("c");
    }).join();
    std::thread([] { log_info("d"); }).join();  // belongs to no run
  }
  log_info("e");
  CHECK(one == "acde");
  CHECK(two == "bde");
  CHECK(all == "abcde");
}

TEST_CASE("a silent scope drops the messages of its run and of no run, and does not use up a warning") {
  std::string heard;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { heard += text; });
  const ScopedLogRun own(new_log_run());
  {
    const ScopedLogSilence silence;
    log_info("a");
    warn_once("log_test silence", "b");
    std::thread([] { log_info("c"); }).join();
    std::thread([] {
      const ScopedLogRun other(new_log_run());
      log_info("d");
    }).join();
  }
  warn_once("log_test silence", "b");
  CHECK(heard == "db");
}
