/// Failed writes that return an error, where the kernel would end the process.
#pragma once

#include <signal.h>

namespace npu_train {

/// Beyond the limit on file sizes (`ulimit -f`), and on a socket that the other side has closed, the kernel sends a signal that ends the
/// process. While this object lives, the signal is blocked in its thread, and in the threads that this one starts for as long as they
/// run, so that the write fails with EFBIG or EPIPE instead. The program's own handling of the signal does not change.
class HoldSignal {
 public:
  /// Of a signal that a thread causes by what it does: SIGXFSZ, SIGPIPE.
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
