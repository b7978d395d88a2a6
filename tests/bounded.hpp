/// Runs work under a limit on memory or processor time.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace npu_train::testing {

/// Runs `fn` in a process of its own, under the limits that `limit` sets there. Returns true if it ended without an exception.
inline bool runs_under(const std::function<void()>& limit, const std::function<void()>& fn) {
  const auto pid = ::fork();
  if (pid == 0) {
    limit();
    int code = 1;
    try {
      fn();
      code = 0;
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Returns true if `fn` can run in a process that may allocate at most `megabytes` in addition to its present memory.
inline bool runs_within(size_t megabytes, const std::function<void()>& fn) {
  const auto limit = [megabytes] {
    size_t pages = 0;
    if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(statm, "%zu", &pages) != 1) pages = 0;
      std::fclose(statm);
    }
    const auto most = pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + (megabytes << 20);
    const rlimit limits{most, most};
    ::setrlimit(RLIMIT_AS, &limits);
  };
  return runs_under(limit, fn);
}

#ifdef NPU_TRAIN_SANITIZED
inline constexpr bool kCountsMemory = false;  // false under sanitizers, which reserve terabytes of addresses
inline constexpr int kSlowness = 10;          // sanitizers take several times the processor time
#else
inline constexpr bool kCountsMemory = true;
inline constexpr int kSlowness = 1;
#endif

/// Returns true if `fn` needs at most a minute of processor time; other programs on the machine do not count. Use inputs of megabytes: work
/// that grows linearly then takes about a second, and work that grows quadratically takes minutes to an hour.
inline bool grows_in_proportion(const std::function<void()>& fn) {
  const auto limit = [] {
    const rlimit limits{60 * kSlowness, 60 * kSlowness};
    ::setrlimit(RLIMIT_CPU, &limits);
  };
  return runs_under(limit, fn);
}

}  // namespace npu_train::testing
