#include "npu_train/train/overflow_report.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/run_backward.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/trace/op_observer.hpp"
#include "npu_train/train/passes.hpp"
#include "train/overflow_advice.hpp"

namespace npu_train {
namespace {

bool is_value(const at::Tensor& t) { return t.defined() && t.is_floating_point() && t.numel() > 0; }

double largest(const at::Tensor& t) { return t.detach().abs().max().to(at::kDouble).item<double>(); }

// Recognises overflows in tensors on the device of the run.
class Overflows {
 public:
  // `computes_in`: dtype of the computation. Gradients may have another dtype, because they may be copies in fp32.
  Overflows(const Device& device, at::ScalarType computes_in)
      : device_(device), saturates_(backend_of(device).capabilities(device).saturating_overflow), computes_in_(computes_in) {
    raised();
  }

  // On a saturating device, returns whether its flag was raised since the last call. Values do not show an overflow there if NaN became 0.
  bool raised() const {
    if (!saturates_) return false;
    const auto& backend = backend_of(device_);
    const bool set = backend.overflow_flag(device_);
    if (set) backend.clear_overflow_flag(device_);
    return set;
  }

  bool within(const at::Tensor& t) const { return largest(t) < limit(t.scalar_type()); }
  // Returns whether a gradient shows no overflow. An fp32 gradient may exceed every fp16 number, so it counts as an overflow of fp16 only
  // if it equals the largest fp16 number.
  bool gradient_within(const at::Tensor& t) const {
    const double value = largest(t);
    return value < limit(t.scalar_type()) && !(saturates_ && computes_in_ == at::kHalf && value == limit(at::kHalf));
  }

  // Returns the samples with values beyond the limit. Returns none if they are more than an eighth of all; one sample is always allowed.
  std::vector<int64_t> blamed(const at::Tensor& t, int64_t samples) const;

 private:
  // Returns the smallest magnitude that is an overflow; on a saturating device, that is the largest number itself.
  double limit(at::ScalarType type) const {
    if (!saturates_) return std::numeric_limits<double>::infinity();
    if (type == at::kHalf) return 65504.0;
    if (type == at::kBFloat16) return static_cast<double>(static_cast<float>(std::numeric_limits<c10::BFloat16>::max()));
    return std::numeric_limits<float>::max();
  }

  Device device_;
  bool saturates_;
  at::ScalarType computes_in_;
};

std::vector<int64_t> Overflows::blamed(const at::Tensor& t, int64_t samples) const {
  if (t.dim() == 0 || t.size(0) != samples || samples < 2) return {};
  const at::Tensor sizes = t.detach().cpu().abs().to(at::kDouble).reshape({samples, -1});
  const at::Tensor bad = sizes.lt(limit(t.scalar_type())).all(1).logical_not();  // also true for NaN, which is not less than any number
  const auto count = bad.sum().item<int64_t>();
  std::vector<int64_t> out;
  if (count > 0 && count <= std::max<int64_t>(1, samples / 8))
    for (int64_t i = 0; i < samples; ++i)
      if (bad[i].item<bool>()) out.push_back(i);
  return out;
}

// Returns the layer of a parameter, or the parameter itself if it belongs directly to the model.
std::string owner_of(const std::string& parameter) {
  const auto layer = layer_of(parameter);
  return layer.empty() ? parameter : layer;
}

// The observer's record of an operator.
struct Step {
  std::string layer, op;
  bool has_parameter = false;
  std::vector<const void*> inputs;  // addresses of its input tensors
  const void* output = nullptr;
  double gradient = -1;
  bool gradient_within = true;
  std::vector<int64_t> gradient_samples;
};

// Returns whether an operator only reserves memory, so that its output is undefined.
bool is_unwritten(std::string_view op) { return op.starts_with("empty") || op.starts_with("new_empty"); }

// One micro-batch under observation.
class Replay {
 public:
  Replay(OverflowReport& report, const ParameterSet& parameters, const Batch& batch, uint64_t draw_key, const Overflows& overflows)
      : report_(report), parameters_(parameters), batch_(batch), draw_key_(draw_key), overflows_(overflows) {}

  // Returns true if a value that is not finite was found.
  bool run(Task& task, Precision& precision, const OverflowContext& context) {
    StepOutput output;
    {
      const OpObserver observer(
          parameters_, [this](const SeenOp& op) { see(op); }, /*every=*/true);
      output = detail::training_output(task, precision, batch_, draw_key_);
    }
    context.restore_buffers();
    report_.loss = output.loss.to(at::kDouble).item<double>();
    if (!source_ && (!std::isfinite(report_.loss) || overflows_.raised())) source_ = OverflowSource{"loss", "", "the loss itself"};
    if (output.loss.requires_grad()) run_backward(precision.scale_loss(share_of_window(output, context.full_weight)));
    return finish();
  }

  // Measures the magnitudes by layer in fp32, for a model whose parameters are fp32.
  void run_in_fp32(Task& task, const OverflowContext& context) {
    std::map<std::string, double> seen;
    {
      const c10::NoGradGuard no_grad;
      const OpObserver observer(parameters_, [&](const SeenOp& op) {
        if (!op.parameter.empty() && is_value(op.output)) seen[owner_of(op.parameter)] = largest(op.output);
      });
      const Fp32Region region(device_of(batch_.input().device()));
      detail::training_output(task, Precision(), batch_, draw_key_);
    }
    context.restore_buffers();
    for (auto& layer : report_.layers)
      if (const auto found = seen.find(layer.layer); found != seen.end()) layer.largest_fp32 = found->second;
  }

 private:
  void see(const SeenOp& op) {
    if (!is_value(op.output) || is_unwritten(op.name)) return;
    Step step;
    step.layer = op.parameter.empty() ? after(last_layer_) : owner_of(op.parameter);
    step.op = op.name;
    step.output = op.output.unsafeGetTensorImpl();
    step.has_parameter = !op.parameter.empty();
    bool inputs_within = true, weights_within = true;
    const auto take = [&](const at::Tensor& input) {
      if (!is_value(input)) return;
      step.inputs.push_back(input.unsafeGetTensorImpl());
      (input.is_leaf() && input.requires_grad() ? weights_within : inputs_within) &= overflows_.within(input);
    };
    for (const auto& value : op.inputs) {
      if (value.isTensor()) take(value.toTensor());
      if (value.isTensorList())
        for (const at::Tensor& t : value.toTensorList()) take(t);
    }
    if (step.has_parameter) {
      last_layer_ = step.layer;
      report_.layers.push_back({.layer = step.layer, .op = step.op, .largest = largest(op.output), .largest_fp32 = -1, .gradient = -1});
      ranges_[steps_.size()] = report_.layers.size() - 1;
    }
    if (const bool raised = overflows_.raised(); !source_ && (raised || (inputs_within && !overflows_.within(op.output)))) {
      source_ = OverflowSource{"forward", step.layer, step.op};
      if (!weights_within) report_.broken_weight = op.parameter;
      if (weights_within) blame(overflows_.blamed(op.output, batch_.input().size(0)));
    }
    if (op.output.requires_grad() && !op.output.is_leaf()) watch_gradient(op.output, steps_.size());
    kept_.push_back(op.output);  // kept alive, so that no other tensor gets its memory and thus its address
    steps_.push_back(std::move(step));
  }

  void watch_gradient(const at::Tensor& output, size_t index) {
    output.register_hook([this, index](const at::Tensor& gradient) {
      if (!is_value(gradient)) return;
      auto& step = steps_[index];
      step.gradient = largest(gradient);
      step.gradient_within = overflows_.within(gradient);
      if (overflows_.raised() && first_raised_ < 0) first_raised_ = static_cast<int64_t>(index);
      if (!step.gradient_within && first_gradient_ < 0) {
        first_gradient_ = static_cast<int64_t>(index);
        step.gradient_samples = overflows_.blamed(gradient, batch_.input().size(0));
      }
    });
  }

  bool finish() {
    for (const auto& [step, range] : ranges_) report_.layers[range].gradient = steps_[step].gradient;
    report_.parameters_in_all = static_cast<int64_t>(parameters_.size());
    for (const auto& p : parameters_) {
      const auto& gradient = p.value.grad();
      if (is_value(gradient) && !overflows_.gradient_within(gradient)) report_.parameters.push_back(p.name);
    }
    if (!source_) source_ = backward_source();
    kept_.clear();
    if (source_) report_.source = *source_;
    return source_.has_value();
  }

  // Returns the source of the first gradient that is not finite: an operator whose backward produced it from a finite gradient.
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
    if (!report_.parameters.empty())
      return OverflowSource{"backward", owner_of(report_.parameters.back()), "gradient of " + report_.parameters.back()};
    if (first_raised_ >= 0) {
      const auto& near = steps_[static_cast<size_t>(first_raised_)];
      return OverflowSource{"backward", near.layer, "an operator after " + near.op};
    }
    return overflows_.raised() ? std::optional(OverflowSource{"backward", "", "the first operators of the model"}) : std::nullopt;
  }

  void blame(const std::vector<int64_t>& positions) {
    for (const auto i : positions) {
      const auto at = static_cast<size_t>(i);
      report_.samples.push_back(at < batch_.ids.size() ? batch_.ids[at] : i);
    }
  }

  static std::string after(const std::string& layer) { return layer.empty() ? "before the first layer" : "after " + layer; }

  OverflowReport& report_;
  const ParameterSet& parameters_;
  const Batch& batch_;
  uint64_t draw_key_;
  const Overflows& overflows_;
  std::vector<Step> steps_;
  std::map<size_t, size_t> ranges_;  // indices in report_.layers, by step
  std::vector<at::Tensor> kept_;
  std::optional<OverflowSource> source_;
  std::string last_layer_;
  int64_t first_gradient_ = -1, first_raised_ = -1;  // indices of steps
};

// Saves the gradients of the replayed window, which the optimizer may still need, and restores them.
class KeptGradients {
 public:
  explicit KeptGradients(const ParameterSet& parameters) : parameters_(parameters) {
    for (const auto& p : parameters_) gradients_.push_back(p.value.grad());
  }
  ~KeptGradients() {
    for (size_t i = 0; i < gradients_.size(); ++i) parameters_[i].value.mutable_grad() = gradients_[i];
  }
  KeptGradients(const KeptGradients&) = delete;
  KeptGradients& operator=(const KeptGradients&) = delete;

 private:
  const ParameterSet& parameters_;
  std::vector<at::Tensor> gradients_;
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
  const auto parameters = task.parameters();
  const KeptGradients gradients(parameters);
  const Overflows overflows(device_of(context.window->front().input().device()), precision.low_precision_dtype());
  for (size_t i = 0; i < context.window->size(); ++i) {
    parameters.zero_grad();
    report.layers.clear();
    report.parameters.clear();
    report.micro_batch = static_cast<int64_t>(i);
    const auto number = context.micro_batch_number ? context.micro_batch_number(report.micro_batch) : report.micro_batch;
    const PortableRandom::MicroBatch draws("training", context.attempt, number);
    Replay replay(report, parameters, (*context.window)[i], draws.key(), overflows);
    if (!replay.run(task, precision, context)) continue;
    if (precision.name().ends_with("-mixed")) replay.run_in_fp32(task, context);
    break;
  }
  report.advice = detail::overflow_advice(report);
  return report;
}

}  // namespace npu_train
