/// Sets the number of CPU threads of libtorch's operators for a scope.
#pragma once

namespace npu_train {

/// Sets the number of threads in its scope. The number affects the last bits of sums, so a bit-exact repetition requires the same number.
/// libtorch has one number per process; threads started by autograd inherit it.
class ThreadCount {
 public:
  /// `threads` <= 0 leaves the number unchanged.
  explicit ThreadCount(int threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;  // 0: unchanged
};

}  // namespace npu_train
