#pragma once

#include <memory>

namespace npu_train::detail {

// Captures a device's work: everything that is queued on the current stream between begin() and end().
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void replay() = 0;
};

// Returns null if this build has no CUDA headers.
std::unique_ptr<CapturedWork> make_cuda_graph();

}  // namespace npu_train::detail
