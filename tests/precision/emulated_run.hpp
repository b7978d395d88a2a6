// Runs a forward and backward under emulation, with references in double.
#pragma once

#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/emulation.hpp"
#include "reference/dense.hpp"
#include "reference/low_precision.hpp"

namespace npu_train::testing {

using reference::Array;
using reference::leaf;
using reference::spacings_apart;
using reference::values;

inline const Device kEmulator;
inline constexpr at::ScalarType kLow[] = {at::kBFloat16, at::kHalf};
inline constexpr double kOnce = 0.5001;  // in spacings: the limit for a result that is rounded once

inline Autocast emulated(at::ScalarType dtype) { return Autocast(kEmulator, dtype, true, true, CpuLowPrecision::Emulated); }

inline Array low(const at::Tensor& t, at::ScalarType dtype) { return reference::nearest(Array(t), dtype); }

struct EmulatedRun {
  at::Tensor y;
  std::vector<at::Tensor> grads;
  Array dy;
};

// Runs a forward under emulation, and computes the gradients of `leaves` for an incoming gradient that is exact in `dtype`.
template <class Fn>
EmulatedRun run(at::ScalarType dtype, const std::vector<at::Tensor>& leaves, Fn fn) {
  EmulatedRun out;
  {
    const auto region = emulated(dtype);
    out.y = fn();
  }
  REQUIRE((out.y.scalar_type() == dtype));
  const at::Tensor dy = values(out.y.sizes(), 99, dtype);
  out.dy = Array(dy);
  out.grads = torch::autograd::grad({out.y}, leaves, {dy});
  for (size_t i = 0; i < leaves.size(); ++i) REQUIRE((out.grads[i].scalar_type() == leaves[i].scalar_type()));
  return out;
}

}  // namespace npu_train::testing
