/// The decisions of a precision on a device, for people and programs: `train_app CONFIG --print-precision`.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/precision/loss_scale.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train {

/// How one layer computes.
struct LayerPrecision {
  std::string name;        ///< path of the module
  std::string op;          ///< the operator that uses its parameters: "conv2d"
  std::string computes;    ///< dtype of its result: "fp32", "bf16", "fp16"
  std::string parameters;  ///< dtype of its parameters
};

/// The requested precision, with all decisions that depend on the device. make_precision() follows it.
struct PrecisionPolicy {
  std::string mode;                   ///< without O-names and auto: "bf16-mixed"; "O3" stays
  Device device{};                    ///< where it computes
  at::ScalarType dtype = at::kFloat;  ///< of convolutions, linear layers, matrix products and attention
  bool emulated = false;              ///< by fp32 kernels that round, see emulation.hpp
  bool native = true;                 ///< the device has units for the dtype
  bool low_parameters = false;        ///< `*-true`: parameters in dtype
  bool masters = false;               ///< with fp32 masters in the optimizer
  std::optional<LossScaleOptions> loss_scale{};
  std::string overflow_detector;  ///< "none" (no step is skipped), "finite check", "finite check and status flag" (saturating devices)
  std::vector<std::string> fp32_ops{};
  std::vector<std::string> fp32_ops_not_met{};  ///< of fp32_ops: those that the model's forward does not call; known with the layers
  std::vector<std::string> fp32_modules{};
  std::vector<std::string> low_precision_modules{};
  std::vector<LayerPrecision> layers{};  ///< as seen in a forward; empty where no model was run

  /// Keys in the order above; to_yaml() and to_json() make text of it.
  ConfigNode node() const;
};

/// Without a model. Error(Usage) as make_precision(). Registers and warns of nothing.
PrecisionPolicy precision_policy(const PrecisionOptions& options, const Device& device);

/// "fp32", "bf16", "fp16"; libtorch's name for other dtypes.
std::string dtype_name(at::ScalarType dtype);

}  // namespace npu_train
