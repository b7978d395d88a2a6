/// CPU threads of libtorch's operators, for a scope.
#pragma once

namespace npu_train {

/// Sets the number of threads and restores it. Another number changes the last bits of sums, so a run that must repeat bit for bit keeps
/// one. libtorch keeps the number per process; the threads that autograd starts take it over.
class ThreadCount {
 public:
  /// `threads` <= 0 leaves the number as it is.
  explicit ThreadCount(int threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;  // 0: nothing was changed
};

}  // namespace npu_train
