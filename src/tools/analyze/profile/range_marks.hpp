// Named ranges for recordings of a device's own profiler: NVTX under nsys, mstx under msprof.
#pragma once

#include <string>

#include "npu_train/device/device.hpp"

namespace torch::profiler::impl {
struct ProfilerStubs;
}

namespace npu_train {

/// Marks ranges; has no effect if no library has registered marks for the kind of device.
class RangeMarks {
 public:
  explicit RangeMarks(const Device& device);

  void push(const std::string& name) const;
  void pop() const;

 private:
  const torch::profiler::impl::ProfilerStubs* stubs_ = nullptr;  // nullptr: no profiler would record the ranges
};

}  // namespace npu_train
