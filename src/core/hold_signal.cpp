#include "npu_train/core/hold_signal.hpp"

namespace npu_train {

HoldSignal::HoldSignal(int number) : number_(number) {
  sigemptyset(&set_);
  sigaddset(&set_, number);
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
}

HoldSignal::~HoldSignal() {
  if (sigismember(&before_, number_) == 0) {
    const timespec now{};
    while (sigtimedwait(&set_, nullptr, &now) > 0) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace npu_train
