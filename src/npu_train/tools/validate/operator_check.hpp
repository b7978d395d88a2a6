/// Finds the operators that a device computes wrongly: each operator of a training step runs alone on the device and on the CPU.
///
/// **What is compared.** One step of the run is taken on the CPU. Each of its operators is kept once for every combination of shapes,
/// dtypes and options, with its inputs and the gradients of its results in this step. Then each operator runs by itself, forward and
/// backward: on the CPU in fp64, which gives the exact values, on the CPU in the run's precision, and on the device in the run's precision.
/// Since all three have the same inputs, no error of an operator reaches another.
///
/// **What agrees.** A result x with the exact values j has two errors: |x - j| / |j| (over all elements, 2-norms) and max |x_i - j_i| /
/// max(|j_i|, rms(j)). The device agrees if both of its errors are within their limits. The limit is 4 times (first error) or 8 times
/// (second error) that of the CPU, or, if it is larger, 8 times the error that a random rounding of the inputs to the dtype of the
/// computation causes in fp64, since a device may round inside an operator where the CPU does not. In both cases, 64 (first error) or 256
/// (second error) roundings of fp32 (2^-24) are added for sums in another order. Values that are not finite must be at the same positions
/// as on the CPU, and integers must be equal. msprobe's operator accuracy check likewise compares with a result of higher precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// An operator with one combination of shapes, dtypes and options. The errors are those of the result that is nearest to its limit, or
/// farthest beyond it.
struct CheckedOperator {
  enum class Verdict { Agrees, Wrong, Fails, NotCompared };
  std::string name;      ///< name with the overload: "add.Tensor"
  std::string layer{};   ///< layer of a parameter among the inputs of the first call; "" if there is none
  std::string inputs{};  ///< shapes and dtypes of its tensors: "Float [8, 3, 32, 32], Float [16, 3, 3, 3]"
  int64_t calls = 0;     ///< number of calls in the step
  std::string result{};  ///< "output", "gradient of weight", "running_mean afterwards"
  double error = 0;      ///< error of the device: the one of the two errors that is nearer to its limit
  double cpu_error = 0;  ///< the CPU's error of the same kind
  double allowed = 0;    ///< limit of `error`
  Verdict verdict = Verdict::Agrees;
  std::string note{};  ///< error message of the device, the reason why there is no comparison, or a remark on it
};

struct OperatorCheck {
  std::string device, precision;
  std::vector<CheckedOperator> operators{};  ///< in the order of their first calls
  /// Returns the number of operators with this verdict.
  int64_t count(CheckedOperator::Verdict verdict) const;
  bool passed() const { return count(CheckedOperator::Verdict::Wrong) == 0 && count(CheckedOperator::Verdict::Fails) == 0; }
};

/// Checks `config.device`, with the data, model and precision of the configuration. Writes no files. Error(Usage) if the device is the CPU;
/// errors of the configuration and of starting the device are rethrown.
OperatorCheck check_operators(const RunConfig& config, const Parts& parts = builtin_parts());

/// Reports the verdict and the operators that are wrong or fail. The page and JSON ("operators") have all operators.
Report report_of(const OperatorCheck& check);

}  // namespace npu_train
