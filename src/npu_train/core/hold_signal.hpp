/// Makes failed writes return an error instead of ending the process by a signal.
#pragma once

#include <signal.h>

namespace npu_train {

/// In its scope, blocks a signal on this thread, so that a write fails with EFBIG or EPIPE. Threads that this thread starts in the scope
/// block the signal permanently. Without this scope, a write beyond the limit on file sizes (`ulimit -f`), or to a socket that its peer has
/// closed, would raise a signal that ends the process. The program's signal handlers do not change.
class HoldSignal {
 public:
  /// Blocks a synchronous signal (SIGXFSZ, SIGPIPE) on this thread.
  explicit HoldSignal(int number);
  ~HoldSignal();
  HoldSignal(const HoldSignal&) = delete;
  HoldSignal& operator=(const HoldSignal&) = delete;

 private:
  int number_;
  sigset_t set_{};
  sigset_t before_{};
};

}  // namespace npu_train
