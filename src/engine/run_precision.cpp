#include "npu_train/engine/run_precision.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "npu_train/core/error.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train {
namespace {

/// Returns the layers of a forward, in execution order.
std::vector<LayerPrecision> watched_forward(const Model& model, Task& task, const Precision& precision, const Device& device) {
  std::vector<LayerPrecision> out;
  const auto parameters = task.parameters();
  const OpObserver observer(parameters, [&](const SeenOp& seen) {
    if (seen.parameter.empty()) return;
    const auto layer = layer_of(seen.parameter);
    auto row = std::find_if(out.begin(), out.end(), [&](const LayerPrecision& l) { return l.name == layer; });
    if (row == out.end()) row = out.insert(out.end(), LayerPrecision{.name = layer, .op = {}, .computes = {}, .parameters = {}});
    row->op = seen.name;  // the last operator counts, because torch::nn::Linear first transposes its weight
    row->computes = dtype_name(seen.output.scalar_type());
    for (const auto& p : parameters)
      if (p.name == seen.parameter) row->parameters = dtype_name(p.value.scalar_type());
  });
  const at::NoGradGuard no_grad;
  const auto batch =
      example_batch(model.inputs, {.samples = 2, .zeros = true}).map([&](const at::Tensor& t) { return t.to(device.c10()); });
  const auto scope = precision.forward_scope();
  task.forward(precision.cast_input(batch));
  return out;
}

}  // namespace

PrecisionPolicy precision_policy(const RunConfig& config, const Parts& parts) {
  return translated("precision_policy", [&] {
    const Device device = run_device(config);
    const auto modules = amp_modules(config.amp);
    auto options = precision_options(config);
    auto policy = precision_policy(options, device);
    if (policy.dtype != at::kFloat) {
      policy.fp32_modules = modules.fp32;
      policy.low_precision_modules = modules.low;
    }
    if (config.model.name.empty()) return policy;
    const auto precision = make_precision(options, device);
    Model model = parts.models.make(config.model, "model");
    tune(model, config.model, parts, static_cast<uint64_t>(config.seed));
    keep_in_fp32(model, modules, device, *precision);
    model.module->to(device.c10());
    const auto task = parts.tasks.make(config.task, "task", model, parts.metrics);
    task->to(device.c10());
    const auto all = task->parameters();
    precision->prepare(all, fp32_parameters(model, modules, task->norm_parameters(), all, *precision));
    task->set_training(true);
    policy.layers = watched_forward(model, *task, *precision, device);
    const auto met = precision->fp32_ops().met();
    const auto is_met = [&](const std::string& op) { return std::find(met.begin(), met.end(), op) != met.end(); };
    if (policy.fp32_ops.empty()) return policy;
    for (const auto& op : config.amp.fp32_ops)
      if (!is_met(op)) policy.fp32_ops_not_met.push_back(op);
    for (const auto& entry : options.fp32_modules) {
      const auto ops = fp32_ops_of_class(entry);
      if (std::none_of(ops.begin(), ops.end(), is_met)) policy.fp32_ops_not_met.push_back(entry);
    }
    return policy;
  });
}

}  // namespace npu_train
