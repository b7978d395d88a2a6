#include "npu_train/train/overflow_report.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "npu_train/device/backend.hpp"
#include "npu_train/nn/op_observer.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/fp32_region.hpp"
#include "train/overflow_advice.hpp"

namespace npu_train {
namespace {

bool is_value(const at::Tensor& t) { return t.defined() && t.is_floating_point() && t.numel() > 0; }

double largest(const at::Tensor& t) { return t.detach().abs().max().to(at::kDouble).item<double>(); }

// A saturating device gives the largest number where another gives inf: both count.
bool is_within(const at::Tensor& t, bool saturates) {
  const double value = largest(t);
  const bool low = t.scalar_type() == at::kHalf;
  return std::isfinite(value) && !(saturates && low && value >= 65504.0);
}

// Indices of the first dimension whose values are not all finite, where that is at most an eighth of `samples` (at least one).
std::vector<int64_t> blamed(const at::Tensor& t, int64_t samples) {
  if (t.dim() == 0 || t.size(0) != samples || samples < 2) return {};
  const at::Tensor bad = at::isfinite(t.detach()).reshape({samples, -1}).all(1).logical_not().cpu();
  const auto count = bad.sum().item<int64_t>();
  std::vector<int64_t> out;
  if (count > 0 && count <= std::max<int64_t>(1, samples / 8))
    for (int64_t i = 0; i < samples; ++i)
      if (bad[i].item<bool>()) out.push_back(i);
  return out;
}

// What the observer notes of an operator.
struct Step {
  std::string layer, op;
  bool has_parameter = false;
  std::vector<const void*> inputs;  // of its tensors
  const void* output = nullptr;
  double gradient = -1;
  bool gradient_within = true;
  std::vector<int64_t> gradient_samples;
};

// One micro-batch under observation.
class Replay {
 public:
  Replay(OverflowReport& report, const Batch& batch, bool saturates) : report_(report), batch_(batch), saturates_(saturates) {}

  // True: a value that is not finite was found.
  bool run(Task& task, Precision& precision, const OverflowContext& context) {
    StepOutput output;
    {
      const OpObserver observer(
          task.parameters(), [this](const SeenOp& op) { see(op); }, /*every=*/true);
      const auto scope = precision.forward_scope();
      output = task.training_step(precision.cast_input(batch_));
    }
    context.restore_buffers();
    report_.loss = output.loss.to(at::kDouble).item<double>();
    if (!source_ && !std::isfinite(report_.loss)) source_ = OverflowSource{"loss", "", "the loss itself"};
    if (output.loss.requires_grad()) precision.scale_loss(output.loss).backward();
    return finish(task);
  }

  // Magnitudes by layer in fp32, for a model whose parameters are fp32.
  void run_in_fp32(Task& task, const OverflowContext& context) {
    std::map<std::string, double> seen;
    {
      const c10::NoGradGuard no_grad;
      const OpObserver observer(task.parameters(), [&](const SeenOp& op) {
        if (!op.parameter.empty() && is_value(op.output)) seen[layer_of(op.parameter)] = largest(op.output);
      });
      const Fp32Region region(device_of(batch_.input().device()));
      task.training_step(batch_);
    }
    context.restore_buffers();
    for (auto& layer : report_.layers)
      if (const auto found = seen.find(layer.layer); found != seen.end()) layer.largest_fp32 = found->second;
  }

 private:
  void see(const SeenOp& op) {
    if (!is_value(op.output)) return;
    Step step;
    step.layer = op.parameter.empty() ? after(last_layer_) : layer_of(op.parameter);
    step.op = op.name;
    step.output = op.output.unsafeGetTensorImpl();
    step.has_parameter = !op.parameter.empty();
    bool inputs_within = true;
    for (const auto& value : op.inputs) {
      if (!value.isTensor() || !is_value(value.toTensor())) continue;
      step.inputs.push_back(value.toTensor().unsafeGetTensorImpl());
      inputs_within &= is_within(value.toTensor(), saturates_);
    }
    if (step.has_parameter) {
      last_layer_ = step.layer;
      report_.layers.push_back({.layer = step.layer, .op = step.op, .largest = largest(op.output), .largest_fp32 = -1, .gradient = -1});
      ranges_[steps_.size()] = report_.layers.size() - 1;
    }
    if (!source_ && inputs_within && !is_within(op.output, saturates_)) {
      source_ = OverflowSource{"forward", step.layer, step.op};
      blame(blamed(op.output, batch_.input().size(0)));
    }
    if (op.output.requires_grad() && !op.output.is_leaf()) watch_gradient(op.output, steps_.size());
    kept_.push_back(op.output);  // so that no other tensor takes its place in memory, and its address
    steps_.push_back(std::move(step));
  }

  void watch_gradient(const at::Tensor& output, size_t index) {
    output.register_hook([this, index](const at::Tensor& gradient) {
      if (!is_value(gradient)) return;
      auto& step = steps_[index];
      step.gradient = largest(gradient);
      step.gradient_within = is_within(gradient, saturates_);
      if (!step.gradient_within && first_gradient_ < 0) {
        first_gradient_ = static_cast<int64_t>(index);
        step.gradient_samples = blamed(gradient, batch_.input().size(0));
      }
    });
  }

  bool finish(Task& task) {
    for (const auto& [step, range] : ranges_) report_.layers[range].gradient = steps_[step].gradient;
    for (const auto& p : task.parameters()) {
      ++report_.parameters_in_all;
      const auto& gradient = p.value.grad();
      if (is_value(gradient) && !is_within(gradient, saturates_)) report_.parameters.push_back(p.name);
    }
    if (!source_) source_ = backward_source();
    kept_.clear();
    if (source_) report_.source = *source_;
    return source_.has_value();
  }

  // The first gradient that is not finite was made by the backward of an operator that took this value and whose own gradient was.
  std::optional<OverflowSource> backward_source() {
    if (first_gradient_ >= 0) {
      const auto& broken = steps_[static_cast<size_t>(first_gradient_)];
      blame(broken.gradient_samples);
      for (size_t i = static_cast<size_t>(first_gradient_) + 1; i < steps_.size(); ++i) {
        const auto& step = steps_[i];
        if (step.gradient_within && std::find(step.inputs.begin(), step.inputs.end(), broken.output) != step.inputs.end())
          return OverflowSource{"backward", step.layer, step.op};
      }
      return OverflowSource{"backward", broken.layer, "the operator after " + broken.op};
    }
    if (report_.parameters.empty()) return std::nullopt;
    return OverflowSource{"backward", layer_of(report_.parameters.back()), "gradient of " + report_.parameters.back()};
  }

  void blame(const std::vector<int64_t>& positions) {
    for (const auto i : positions) {
      const auto at = static_cast<size_t>(i);
      report_.samples.push_back(at < batch_.ids.size() ? batch_.ids[at] : i);
    }
  }

  static std::string after(const std::string& layer) { return layer.empty() ? "before the first layer" : "after " + layer; }

  OverflowReport& report_;
  const Batch& batch_;
  bool saturates_;
  std::vector<Step> steps_;
  std::map<size_t, size_t> ranges_;  // of steps, in report_.layers
  std::vector<at::Tensor> kept_;
  std::optional<OverflowSource> source_;
  std::string last_layer_;
  int64_t first_gradient_ = -1;
};

}  // namespace

OverflowReport explain_overflow(Task& task, Precision& precision, const OverflowContext& context) {
  OverflowReport report;
  report.attempt = context.attempt;
  report.precision = precision.name();
  report.loss_scale = precision.scale();
  report.largest_of_dtype = precision.low_precision_dtype() == at::kHalf ? 65504.0 : static_cast<double>(std::numeric_limits<float>::max());
  report.source.phase = "unknown";
  const RandomState::Scope random(context.random);
  const auto device = device_of(context.window->front().input().device());
  const bool saturates = backend_of(device).capabilities(device).saturating_overflow;
  for (size_t i = 0; i < context.window->size(); ++i) {
    task.parameters().zero_grad();
    report.layers.clear();
    report.parameters.clear();
    report.parameters_in_all = 0;
    report.micro_batch = static_cast<int64_t>(i);
    Replay replay(report, (*context.window)[i], saturates);
    if (!replay.run(task, precision, context)) continue;
    if (precision.name().ends_with("-mixed")) replay.run_in_fp32(task, context);
    break;
  }
  task.parameters().zero_grad();
  report.advice = detail::overflow_advice(report);
  return report;
}

}  // namespace npu_train
