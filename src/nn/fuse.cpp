#include "npu_train/nn/fuse.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <unordered_map>

#include "nn/fusion_mode.hpp"
#include "npu_train/base/storage.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/live_bytes.hpp"
#include "npu_train/nn/named_state.hpp"

namespace npu_train {
namespace {

using detail::ChainForm;
using detail::FusedChain;
using detail::OpChain;

constexpr const char* kFuse = "fuse";

// No gradients, and no autocast: weights of fused layers have one type.
class InferenceScope {
 private:
  at::NoGradGuard no_grad_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

void check_options(const Model& model, const FuseOptions& o) {
  check(model.module != nullptr && model.forward != nullptr, ErrorKind::Usage, kFuse, "the model has no ",
        model.module == nullptr ? "module" : "forward", "; hint: fill Model::module and Model::forward");
  check(o.min_saving <= 1, ErrorKind::Usage, kFuse, "min_saving is ", o.min_saving, "; allowed: at most 1");
  check(o.max_memory_overhead > 0 && o.max_error >= 0, ErrorKind::Usage, kFuse, "max_memory_overhead ", o.max_memory_overhead,
        ", max_error ", o.max_error, "; they must be above 0, and at least 0");
  check(o.repeats >= 1 && o.repeats <= 10000, ErrorKind::Usage, kFuse, "repeats is ", o.repeats, "; allowed: 1 to 10000");
  check(o.example.defined() || model.image_size > 0, ErrorKind::Usage, kFuse,
        "nothing says what the model takes; hint: give FuseOptions::example, or Model::image_size");
}

at::Tensor example_for(const Model& model, const ParameterSet& parameters, const FuseOptions& options) {
  if (options.example.defined()) return options.example;
  const auto like = parameters.empty() ? at::TensorOptions() : parameters[0].value.options();
  return at::rand({1, model.channels, model.image_size, model.image_size}, at::TensorOptions(like.dtype()))
      .to(like.device())
      .contiguous(parameters.empty() ? at::MemoryFormat::Contiguous : parameters[0].value.suggest_memory_format());
}

// Deviation of `got` by the largest value of `want`; inf for other sizes and where only one is finite.
double deviation(const at::Tensor& got, const at::Tensor& want) {
  if (!got.sizes().equals(want.sizes())) return std::numeric_limits<double>::infinity();
  if (want.numel() == 0) return 0;
  const at::Tensor a = got.detach().to(at::kCPU, at::kDouble), b = want.detach().to(at::kCPU, at::kDouble);
  const double off = (a - b).abs().max().item<double>(), size = b.abs().max().item<double>();
  if (!std::isfinite(off)) return std::numeric_limits<double>::infinity();
  return size > 0 ? off / size : off;
}

// The best times of two ways, run in turn.
std::pair<double, double> best_in_turn(const std::function<void()>& a, const std::function<void()>& b, const Device& device, int repeats) {
  const auto& backend = backend_of(device);
  const auto clock = steady_clock();
  const auto time = [&](const std::function<void()>& fn) {
    const double start = clock->now();
    fn();
    backend.synchronize(device);
    return clock->now() - start;
  };
  a(), b();
  backend.synchronize(device);
  double first = std::numeric_limits<double>::infinity(), second = first;
  for (int i = 0; i < repeats; ++i) {
    const bool turned = i % 2 == 1;
    if (turned) second = std::min(second, time(b));
    first = std::min(first, time(a));
    if (!turned) second = std::min(second, time(b));
  }
  return {first, second};
}

// What a form needs beside its inputs and weights, its result included; 0 where the device does not tell.
int64_t peak_of(const std::function<at::Tensor()>& fn, const Device& device) {
  at::Tensor kept;
  return std::max<int64_t>(peak_bytes_of(device, [&] { kept = fn(); }), 0);
}

class Trial {
 public:
  Trial(const OpChain& chain, const FuseOptions& options, Device device)
      : chain_(chain), options_(options), device_(std::move(device)), inputs_(chain.inputs()), plain_(chain.plain()) {
    if (chain.weight.defined()) own_bytes_ = chain.weight.numel() * static_cast<int64_t>(chain.weight.element_size());
    plain_peak_ = peak_of([&] { return chain_.plain(); }, device_);
  }

  FusedPattern judge(const ChainForm& form) const {
    FusedPattern out{.layer = chain_.layer, .pattern = chain_.pattern, .form = form.name, .reason = {}};
    try {
      const auto [before, after] = best_in_turn([&] { chain_.plain(); }, [&] { form.run(inputs_); }, device_, options_.repeats);
      out.saving = 1 - after / before;
      out.error = deviation(form.run(inputs_), plain_);
      const auto weights = form.weight_bytes + (options_.keep_weights || !chain_.only_reader ? own_bytes_ : 0);
      const auto peak = peak_of([&] { return form.run(inputs_); }, device_);
      out.memory_overhead = static_cast<double>(weights + peak) / static_cast<double>(std::max<int64_t>(own_bytes_ + plain_peak_, 1));
    } catch (const std::exception& e) {  // oneDNN has exceptions of its own
      out.error = std::numeric_limits<double>::infinity();
      out.reason = std::string("this form failed: ") + first_line(e.what());
      return out;
    }
    out.reason = objection(out);
    out.kept = out.reason.empty();
    return out;
  }

 private:
  std::string objection(const FusedPattern& p) const {
    const auto percent = [](double share) { return shortest(std::round(share * 1000) / 10) + " %"; };
    const auto rounded = [](double x) { return shortest(std::round(x * 100) / 100); };
    char error[32];
    std::snprintf(error, sizeof error, "%.2g", p.error);
    if (!(p.error <= options_.max_error)) return c10::str("the error ", error, " is above ", shortest(options_.max_error));
    if (p.memory_overhead > options_.max_memory_overhead)
      return c10::str(rounded(p.memory_overhead), " times the memory; at most ", rounded(options_.max_memory_overhead), " is allowed");
    if (p.saving < options_.min_saving)
      return c10::str("saves ", percent(p.saving), "; at least ", percent(options_.min_saving), " is asked for");
    return "";
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  const OpChain& chain_;
  const FuseOptions& options_;
  Device device_;
  std::vector<at::Tensor> inputs_;
  at::Tensor plain_;
  int64_t own_bytes_ = 0, plain_peak_ = 0;
};

// The best of a chain's forms: the fastest of those that are kept, else the one that came nearest.
std::pair<FusedPattern, ChainForm> best_form(const OpChain& chain, const FuseOptions& options, const Device& device) {
  std::pair<FusedPattern, ChainForm> best{{.layer = chain.layer, .pattern = chain.pattern, .form = {}, .reason = {}}, {}};
  try {
    const Trial trial(chain, options, device);
    const auto rank = [](const FusedPattern& p) { return std::make_tuple(p.kept, std::isfinite(p.error), p.saving); };
    for (auto& form : detail::forms_of(chain)) {
      auto found = trial.judge(form);
      if (best.first.form.empty() || rank(found) > rank(best.first)) best = {std::move(found), std::move(form)};
    }
  } catch (const std::exception& e) {
    best.first.reason = std::string("it could not be tried: ") + std::string(e.what()).substr(0, 200);
  }
  return best;
}

at::Tensor seen_everywhere(double value, const at::Tensor& like) {
  return at::full({}, value, like.options().requires_grad(false)).expand(like.sizes());
}

// Gives the memory of a weight back: name, shape and type stay, and what reads it sees NaN. What it held is returned.
at::Tensor release(FusedChain& fused, const ParameterSet& parameters) {
  auto& chain = fused.chain;
  const auto* storage = storage_of(chain.weight);
  for (const auto& p : parameters) {
    if (storage_of(p.value) != storage) continue;
    const at::Tensor held = p.value.detach(), gone = seen_everywhere(std::numeric_limits<double>::quiet_NaN(), p.value);
    for (auto& arg : chain.steps[0].args)
      if (arg.isTensor() && storage_of(arg.toTensor()) == storage) arg = arg.toTensor().sizes().equals(gone.sizes()) ? gone : gone.t();
    at::Tensor(p.value).set_data(gone);
    chain.weight = p.value;
    fused.released = true;
    return held;
  }
  return {};
}

// The activations of the example, which recorded arguments hold.
void forget_activations(OpChain& chain) {
  for (auto& step : chain.steps)
    for (const auto i : step.open) step.args[i] = seen_everywhere(0, step.args[i].toTensor());
}

struct Whole {
  double before = 0, after = 0, error = 0;
};

Whole measure_whole(const Model& before, const Model& after, const at::Tensor& example, const Device& device, int repeats) {
  Whole out;
  // Another input too: a way through the model that depends on values would show.
  const at::Tensor other = example.is_floating_point() ? at::rand_like(example) : example;
  for (const auto& x : {example, other}) out.error = std::max(out.error, deviation(after.forward(x), before.forward(x)));
  std::tie(out.before, out.after) = best_in_turn([&] { before.forward(example); }, [&] { after.forward(example); }, device, repeats);
  return out;
}

Model run_by(const Model& model, std::shared_ptr<const detail::FusionPlan> plan) {
  Model out = model;
  out.blocks.clear();  // what is fused goes across them
  out.forward = [forward = model.forward, plan = std::move(plan)](const at::Tensor& x) {
    return translated(kFuse, [&] {
      const InferenceScope scope;
      detail::FusionMode mode(*plan);
      const detail::OpModeGuard guard(mode);
      const at::Tensor y = forward(x);
      mode.settle(y);
      return y;
    });
  };
  return out;
}

}  // namespace

int64_t FuseReport::kept() const {
  return std::count_if(patterns.begin(), patterns.end(), [](const FusedPattern& p) { return p.kept; });
}

std::string FuseReport::str() const {
  std::string out;
  char line[256];
  for (const auto& p : patterns) {
    std::snprintf(line, sizeof line, "%-28s %-30s %-9s saves %5.1f %%  memory %.2fx  error %.1e  %s", p.layer.c_str(), p.pattern.c_str(),
                  p.form.c_str(), 100 * p.saving, p.memory_overhead, p.error, p.kept ? "kept" : "not kept: ");
    out += line + p.reason + "\n";
  }
  if (seconds_before == 0) return out + c10::str(kept(), " of ", patterns.size(), " patterns kept; the model runs as before");
  std::snprintf(line, sizeof line, "%lld of %zu patterns kept; forward %.2f ms before, %.2f ms after (%.2fx); error %.1e",
                static_cast<long long>(kept()), patterns.size(), 1e3 * seconds_before, 1e3 * seconds_after,
                seconds_after > 0 ? seconds_before / seconds_after : 0, error);
  return out + line;
}

namespace {

// A fusion under way: what is kept, and the report.
class Fusion {
 public:
  Fusion(const Model& model, const FuseOptions& options)
      : model_(model), options_(options), parameters_(parameters_of(*model.module)), example_(example_for(model, parameters_, options)) {
    for (const auto& p : parameters_)
      check(p.value.numel() <= 1 || !p.value.has_storage() || p.value.storage().nbytes() > static_cast<size_t>(p.value.element_size()),
            ErrorKind::Usage, kFuse, p.name, " was given up by an earlier fuse; hint: fuse once, or with keep_weights = true");
  }

  FusedModel run() {
    const auto device = device_of(example_.device());
    std::unordered_map<const void*, std::string> taken;
    for (auto& chain : detail::find_chains(model_.forward, example_, parameters_)) {
      auto [pattern, form] = best_form(chain, options_, device);
      const auto* weight = storage_of(chain.weight);
      const auto other = weight == nullptr ? taken.end() : taken.find(weight);
      if (pattern.kept && other != taken.end()) {
        pattern.kept = false;
        pattern.reason = "its weight is that of " + other->second + ", which is fused where it comes first";
      }
      if (pattern.kept) {
        taken.emplace(weight, chain.layer);
        kept_.push_back(std::make_shared<FusedChain>(FusedChain{std::move(chain), std::move(form)}));
      }
      report_.patterns.push_back(std::move(pattern));
    }
    if (kept_.empty()) return {model_, report_};
    for (auto& fused : kept_) forget_activations(fused->chain);
    try {
      const auto whole = measure_whole(model_, run_by(model_, plan()), example_, device, options_.repeats);
      report_.seconds_before = whole.before;
      report_.seconds_after = whole.after;
      report_.error = whole.error;
      if (!(whole.error <= options_.max_error)) return keep_nothing("the error of the whole model is " + shortest(whole.error));
      return options_.keep_weights ? FusedModel{run_by(model_, plan()), report_} : without_weights();
    } catch (const std::exception& e) {
      return keep_nothing(std::string("the fused model fails: ") + std::string(e.what()).substr(0, 200));
    }
  }

 private:
  std::shared_ptr<const detail::FusionPlan> plan() const {
    return std::make_shared<const detail::FusionPlan>(std::vector<std::shared_ptr<const FusedChain>>(kept_.begin(), kept_.end()));
  }

  FusedModel keep_nothing(const std::string& reason) {
    for (auto& p : report_.patterns)
      if (std::exchange(p.kept, false)) p.reason = reason;
    report_.seconds_before = report_.seconds_after = 0;
    return {model_, report_};
  }

  // Runs once more without the weights: what still reads one shows here, and they come back.
  FusedModel without_weights() {
    const at::Tensor want = run_by(model_, plan()).forward(example_);
    std::vector<std::pair<at::Tensor, at::Tensor>> held;
    try {
      for (auto& fused : kept_)
        if (fused->chain.only_reader) {
          if (at::Tensor before = release(*fused, parameters_); before.defined()) held.emplace_back(fused->chain.weight, before);
        }
      auto fused = run_by(model_, plan());
      check(deviation(fused.forward(example_), want) <= options_.max_error, ErrorKind::Internal, kFuse,
            "a weight that was given up is read");
      return {fused, report_};
    } catch (...) {
      for (auto& [parameter, before] : held) parameter.set_data(before);
      throw;
    }
  }

  const Model& model_;
  const FuseOptions& options_;
  ParameterSet parameters_;
  at::Tensor example_;
  std::vector<std::shared_ptr<FusedChain>> kept_;
  FuseReport report_;
};

}  // namespace

FusedModel fuse(const Model& model, const FuseOptions& options) {
  check_options(model, options);
  return translated(kFuse, [&] {
    const InferenceScope scope;
    model.module->eval();
    return Fusion(model, options).run();
  });
}

}  // namespace npu_train
