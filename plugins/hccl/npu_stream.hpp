/// NPUStream.h of torch_npu, or a replacement.
///
/// Under the name of this header, the wheels of torch_npu 2.13 and 2.14 ship a compiler's stub that defines a second at::Tensor. Defining
/// the stub's include guard excludes it. ProcessGroupHCCL.hpp uses the class only in containers and signatures, so a declaration suffices.
#pragma once
#define TORCH_NPU_COMPILER_CPU_STUBS_STUBS_H_
#include <torch_npu/csrc/core/npu/NPUStream.h>

#ifndef C10_NPU_API  // the complete header defines it
#include <c10/core/Stream.h>
#include <torch_npu/csrc/core/npu/NPUException.h>

namespace c10_npu {

class NPUStream {
 public:
  enum Unchecked { UNCHECKED };
  explicit NPUStream(Unchecked /*unused*/, c10::Stream stream) : stream_(stream) {}
  operator c10::Stream() const { return stream_; }  // NOLINT: as in torch_npu

 private:
  c10::Stream stream_;
};

}  // namespace c10_npu
#endif
