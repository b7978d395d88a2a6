#pragma once

#include <memory>

namespace npu_train::detail {

// Work of one device, between begin() and end() queued on the current stream and kept.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void replay() = 0;
};

// Null if this build has no headers of CUDA.
std::unique_ptr<CapturedWork> make_cuda_graph();

}  // namespace npu_train::detail
