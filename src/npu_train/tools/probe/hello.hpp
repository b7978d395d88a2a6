/// A first computation on a device: a matrix product in every dtype, compared with the CPU's in fp64, and one training step in every
/// precision.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/device/device.hpp"
#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// The result of a matrix product.
struct MatmulResult {
  double milliseconds = 0;    ///< time of the fastest repetition
  double norm = 0;            ///< Frobenius norm of the product
  double relative_error = 0;  ///< |product - reference| / |reference|, Frobenius norms
  bool finite = true;         ///< no inf and no NaN in the product
};

/// Multiplies two [size, size] matrices of fixed pseudo-random numbers in [-1, 1) on `device`. The reference is the product of the same
/// rounded numbers on the CPU in double. Error(Device) and Error(OutOfMemory) are rethrown.
MatmulResult hello_matmul(const Device& device, c10::ScalarType dtype, int64_t size = 1000, int repetitions = 5);

/// Returns the allowed relative error. In fp32 it is 1e-4 (TF32 has about 3e-4 and does not pass). In other dtypes it is twice the dtype's
/// epsilon: rounding the product causes at most half an epsilon, and hardware may also accumulate partial sums in the dtype.
double hello_tolerance(c10::ScalarType dtype);

Finding judge_matmul(const Device& device, c10::ScalarType dtype, const MatmulResult& result);

/// Takes one training step in a precision ("bf16-mixed") on a device, and returns its finding. An Error becomes a finding with the verdict
/// Fail.
using TrainingStep = std::function<Finding(const Device& device, const std::string& precision)>;

struct HelloOptions {
  int64_t size = 1000;
  std::vector<std::string> precisions{};  ///< precisions in which `step` is run
  TrainingStep step{};                    ///< empty: only products are checked
};

/// Checks products in fp32, fp16 and bf16 on every device, then the training steps. A device that fails or disappears results in a finding;
/// the checks of the other devices continue.
std::vector<Finding> check_hello(const std::vector<Device>& devices, const HelloOptions& options = {});

/// Returns all npu, cuda and cpu devices that this process can use. Adds to `problems` the kinds of devices that seem to be present but do
/// not start.
std::vector<Device> usable_devices(std::vector<Finding>& problems);

}  // namespace npu_train
