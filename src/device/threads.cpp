#include "npu_train/device/threads.hpp"

#include <ATen/Parallel.h>

namespace npu_train {

ThreadCount::ThreadCount(int threads) : before_(0) {
  if (threads <= 0 || threads == at::get_num_threads()) return;
  before_ = at::get_num_threads();
  at::set_num_threads(threads);
}

ThreadCount::~ThreadCount() {
  if (before_ > 0) at::set_num_threads(before_);
}

}  // namespace npu_train
