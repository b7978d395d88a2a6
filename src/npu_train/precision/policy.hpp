/// The decisions of a precision on a device, for people and for programs: `train_app CONFIG --print-precision`.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/precision/loss_scale.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train {

/// The precision of one layer.
struct LayerPrecision {
  std::string name;        ///< path of the module
  std::string op;          ///< operator that uses the module's parameters: "conv2d"
  std::string computes;    ///< dtype of the operator's result: "fp32", "bf16", "fp16"
  std::string parameters;  ///< dtype of the module's parameters
};

/// The requested precision with all decisions that depend on the device. make_precision() uses it.
struct PrecisionPolicy {
  std::string mode;                   ///< resolved mode: "bf16-mixed"; never auto or an O-name except "O3"
  Device device{};                    ///< device that computes
  at::ScalarType dtype = at::kFloat;  ///< dtype of convolutions, linear layers, matrix products and attention
  bool emulated = false;              ///< fp32 kernels compute and round their results, see emulation.hpp
  bool native = true;                 ///< libtorch has fast kernels for the dtype on the device
  bool low_parameters = false;        ///< `*-true`: parameters are in `dtype`
  bool masters = false;               ///< the optimizer keeps fp32 masters
  std::optional<LossScaleOptions> loss_scale{};
  std::string overflow_detector;  ///< "none" (no step is skipped), "finite check", "finite check and status flag" (saturating devices)
  std::vector<std::string> fp32_ops{};
  std::vector<std::string> fp32_ops_not_met{};  ///< fp32_ops that the model's forward does not call; known only together with `layers`
  std::vector<std::string> fp32_modules{};
  std::vector<std::string> low_precision_modules{};
  std::vector<LayerPrecision> layers{};  ///< layers of a recorded forward; empty if no model was run

  /// Returns all decisions in the order above, for to_yaml() and to_json().
  ConfigNode node() const;
};

/// Returns the policy without layers. Error(Usage) as in make_precision(). Registers no kernels and logs no warnings.
PrecisionPolicy precision_policy(const PrecisionOptions& options, const Device& device);

/// Throws Error(Usage) if grad_scaler.enabled requires a loss scale in a precision whose gradients have the range of fp32.
void check_loss_scale_use(const std::string& enabled, const std::string& mode);

/// Returns the precision for a program that opens Autocast itself: 32-true, with a loss scale unless `scale` is empty.
std::unique_ptr<Precision> precision_of_own_loop(const std::optional<LossScaleOptions>& scale, const Device& device);

/// Returns "fp32", "bf16", "fp16", or libtorch's name for other dtypes.
std::string dtype_name(at::ScalarType dtype);

}  // namespace npu_train
