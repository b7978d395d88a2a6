#include "npu_train/device/threads.hpp"

#include <ATen/Parallel.h>

namespace npu_train {

ThreadCount::ThreadCount(int threads) : before_(at::get_num_threads()) {
  if (threads > 0 && threads != before_) at::set_num_threads(threads);
}

ThreadCount::~ThreadCount() {
  if (at::get_num_threads() != before_) at::set_num_threads(before_);
}

}  // namespace npu_train
