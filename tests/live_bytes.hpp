// Measures the memory that a piece of code leaves allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/device/live_bytes.hpp"

namespace npu_train::testing {

// Returns how many more bytes this thread's tensors hold after `fn` than before, its result included.
template <class Fn>
int64_t live_after(Fn fn) {
  const LiveBytes live;
  const at::Tensor y = fn();
  return live.now();
}

// Like the function above, without the result.
template <class Fn>
int64_t kept_by(Fn fn) {
  int64_t result = 0;
  const int64_t live = live_after([&] {
    const at::Tensor y = fn();
    result = static_cast<int64_t>(y.nbytes());
    return y;
  });
  return live - result;
}

}  // namespace npu_train::testing
