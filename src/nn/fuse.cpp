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
#include <limits>
#include <unordered_map>

#include "nn/fusion_mode.hpp"
#include "npu_train/base/storage.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/live_bytes.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train {
namespace {

using detail::ChainForm;
using detail::FusedChain;
using detail::OpChain;

constexpr const char* kFuse = "fuse";

// Disables gradients, and also autocast, because the weights of fused layers have one dtype.
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
  check(o.example.defined() || !model.inputs.empty(), ErrorKind::Usage, kFuse,
        "the model's input is unknown; hint: set FuseOptions::example or Model::inputs");
}

at::Tensor example_for(const Model& model, const ParameterSet& parameters, const FuseOptions& options) {
  if (options.example.defined()) return options.example;
  const auto like = parameters.empty() ? at::TensorOptions() : parameters[0].value.options();
  const auto example = example_batch(model.inputs, {.zeros = true}).fields().front().second;
  return at::rand_like(example, at::TensorOptions(like.dtype()))
      .to(like.device())
      .contiguous(parameters.empty() ? at::MemoryFormat::Contiguous : parameters[0].value.suggest_memory_format());
}

// Returns the largest deviation of `got`, divided by the largest value of `want`; inf if the sizes differ or the deviation is not finite.
double deviation(const at::Tensor& got, const at::Tensor& want) {
  if (!got.sizes().equals(want.sizes())) return std::numeric_limits<double>::infinity();
  if (want.numel() == 0) return 0;
  const at::Tensor a = got.detach().to(at::kCPU, at::kDouble), b = want.detach().to(at::kCPU, at::kDouble);
  const double off = (a - b).abs().max().item<double>(), size = b.abs().max().item<double>();
  if (!std::isfinite(off)) return std::numeric_limits<double>::infinity();
  return size > 0 ? off / size : off;
}

// Runs two functions alternately and returns their best times.
std::pair<double, double> best_in_turn(const std::function<void()>& a, const std::function<void()>& b, const Device& device,
                                       const FuseOptions& options) {
  const auto& backend = backend_of(device);
  const auto clock = options.clock != nullptr ? options.clock : steady_clock();
  const auto time = [&](const std::function<void()>& fn) {
    const double start = clock->now();
    fn();
    backend.synchronize(device);
    return clock->now() - start;
  };
  a(), b();
  backend.synchronize(device);
  double first = std::numeric_limits<double>::infinity(), second = first;
  for (int i = 0; i < options.repeats; ++i) {
    const bool turned = i % 2 == 1;
    if (turned) second = std::min(second, time(b));
    first = std::min(first, time(a));
    if (!turned) second = std::min(second, time(b));
  }
  return {first, second};
}

// Returns the memory of a form beyond its inputs and weights, including its result; 0 if the device does not report it.
int64_t peak_of(const std::function<at::Tensor()>& fn, const Device& device) {
  at::Tensor kept;
  return std::max<int64_t>(peak_bytes_of(device, [&] { kept = fn(); }), 0);
}

// Returns the reason to reject a form that needs more memory than allowed; "" for any other form.
std::string too_much(double memory_overhead, const FuseOptions& options, const char* since = "") {
  const auto rounded = [](double x) { return shortest(std::round(x * 100) / 100); };
  if (memory_overhead <= options.max_memory_overhead) return "";
  return str_cat(rounded(memory_overhead), " times the memory", since, "; at most ", rounded(options.max_memory_overhead), " is allowed");
}

// A form of a chain with its measurements.
struct Choice {
  FusedPattern pattern;
  ChainForm form;
  double with_weight = 0;  // memory_overhead if the chain's own weight is kept next to the form's
};

class Trial {
 public:
  Trial(const OpChain& chain, const FuseOptions& options, Device device)
      : chain_(chain), options_(options), device_(std::move(device)), inputs_(chain.inputs()), plain_(chain.plain()) {
    if (chain.weight.defined()) own_bytes_ = chain.weight.numel() * static_cast<int64_t>(chain.weight.element_size());
    plain_peak_ = peak_of([&] { return chain_.plain(); }, device_);
  }

  Choice judge(const ChainForm& form) const {
    Choice choice{{.layer = chain_.layer, .pattern = chain_.pattern, .form = form.name, .reason = {}}, form};
    auto& out = choice.pattern;
    try {
      const auto [before, after] = best_in_turn([&] { chain_.plain(); }, [&] { form.run(inputs_); }, device_, options_);
      out.saving = 1 - after / before;
      out.error = deviation(form.run(inputs_), plain_);
      const auto bytes = form.weight_bytes + peak_of([&] { return form.run(inputs_); }, device_);
      const auto share = [&](int64_t b) {
        return static_cast<double>(b) / static_cast<double>(std::max<int64_t>(own_bytes_ + plain_peak_, 1));
      };
      choice.with_weight = share(bytes + own_bytes_);
      out.memory_overhead = options_.keep_weights || !chain_.only_reader ? choice.with_weight : share(bytes);
    } catch (const std::exception& e) {  // also exceptions that oneDNN throws
      out.error = std::numeric_limits<double>::infinity();
      out.reason = "this form failed: " + detail::first_line(e.what());
      return choice;
    }
    out.reason = objection(out);
    out.kept = out.reason.empty();
    return choice;
  }

 private:
  std::string objection(const FusedPattern& p) const {
    const auto percent = [](double share) { return shortest(std::round(share * 1000) / 10) + " %"; };
    if (!(p.error <= options_.max_error)) return printed("the error %.2g is above ", p.error) + shortest(options_.max_error);
    if (auto memory = too_much(p.memory_overhead, options_); !memory.empty()) return memory;
    if (p.saving < options_.min_saving)
      return str_cat("saves ", percent(p.saving), "; at least ", percent(options_.min_saving), " is required");
    return "";
  }

  const OpChain& chain_;
  const FuseOptions& options_;
  Device device_;
  std::vector<at::Tensor> inputs_;
  at::Tensor plain_;
  int64_t own_bytes_ = 0, plain_peak_ = 0;
};

// Returns the best form of a chain: the fastest acceptable one, otherwise the one with the largest saving.
Choice best_form(const OpChain& chain, const FuseOptions& options, const Device& device) {
  Choice best{{.layer = chain.layer, .pattern = chain.pattern, .form = {}, .reason = {}}, {}};
  try {
    const Trial trial(chain, options, device);
    const auto rank = [](const FusedPattern& p) { return std::make_tuple(p.kept, std::isfinite(p.error), p.saving); };
    for (const auto& form : detail::forms_of(chain)) {
      auto found = trial.judge(form);
      if (best.pattern.form.empty() || rank(found.pattern) > rank(best.pattern)) best = std::move(found);
    }
  } catch (const std::exception& e) {
    best.pattern.reason = "it could not be tried: " + detail::first_line(e.what());
  }
  return best;
}

at::Tensor seen_everywhere(double value, const at::Tensor& like) {
  return at::full({}, value, like.options().requires_grad(false)).expand(like.sizes());
}

// Frees the memory of a weight: name, shape and type stay, but readers see NaN. Returns a function that restores it.
std::function<void()> release(FusedChain& fused, const ParameterSet& parameters) {
  auto& chain = fused.chain;
  const auto* storage = storage_of(chain.weight);
  for (const auto& p : parameters) {
    if (storage_of(p.value) != storage) continue;
    const at::Tensor held = p.value.detach(), gone = seen_everywhere(std::numeric_limits<double>::quiet_NaN(), p.value);
    auto undo = [&fused, held, parameter = p.value, weight = chain.weight, args = chain.steps[0].args] {
      at::Tensor(parameter).set_data(held);
      fused.chain.steps[0].args = args;
      fused.chain.weight = weight;
      fused.released = false;
    };
    for (auto& arg : chain.steps[0].args)
      if (arg.isTensor() && storage_of(arg.toTensor()) == storage) arg = arg.toTensor().sizes().equals(gone.sizes()) ? gone : gone.t();
    at::Tensor(p.value).set_data(gone);
    chain.weight = p.value;
    fused.released = true;
    return undo;
  }
  return [] {};
}

// Frees the example's activations, which recorded arguments hold.
void forget_activations(OpChain& chain) {
  for (auto& step : chain.steps)
    for (const auto i : step.open) step.args[i] = seen_everywhere(0, step.args[i].toTensor());
}

struct Whole {
  double before = 0, after = 0, error = 0;
};

Whole measure_whole(const Model& before, const Model& after, const at::Tensor& example, const Device& device, const FuseOptions& options) {
  Whole out;
  // Another input reveals a forward that branches on values.
  const at::Tensor other = example.is_floating_point() ? at::rand_like(example) : example;
  for (const auto& x : {example, other}) out.error = std::max(out.error, deviation(after.forward(x), before.forward(x)));
  std::tie(out.before, out.after) = best_in_turn([&] { before.forward(example); }, [&] { after.forward(example); }, device, options);
  return out;
}

Model run_by(const Model& model, std::shared_ptr<const detail::FusionPlan> plan) {
  Model out = model;
  out.blocks.clear();  // fused chains can cross block borders
  out.forward = [forward = model.forward, plan = std::move(plan)](const at::Tensor& x) {
    return translated(kFuse, [&] {
      const InferenceScope scope;
      plan->check_unmoved();
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
  for (const auto& p : patterns)
    out += printed("%-28s %-30s %-9s saves %5.1f %%  memory %.2fx  error %.1e  %s%s\n", p.layer.c_str(), p.pattern.c_str(), p.form.c_str(),
                   100 * p.saving, p.memory_overhead, p.error, p.kept ? "kept" : "not kept: ", p.reason.c_str());
  if (seconds_before == 0) return out + str_cat(kept(), " of ", patterns.size(), " patterns kept; the model runs as before");
  return out + printed("%lld of %zu patterns kept; forward %.2f ms before, %.2f ms after (%.2fx); error %.1e",
                       static_cast<long long>(kept()), patterns.size(), 1e3 * seconds_before, 1e3 * seconds_after,
                       seconds_after > 0 ? seconds_before / seconds_after : 0, error);
}

namespace {

// State of one fuse() call: kept chains and report.
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
      auto [pattern, form, with_weight] = best_form(chain, options_, device);
      const auto* weight = storage_of(chain.weight);
      const auto other = weight == nullptr ? taken.end() : taken.find(weight);
      if (pattern.kept && other != taken.end()) {
        pattern.kept = false;
        pattern.reason = "its weight is that of " + other->second + ", which is fused where it comes first";
      }
      if (pattern.kept) {
        taken.emplace(weight, chain.layer);
        kept_.push_back(
            {std::make_shared<FusedChain>(FusedChain{std::move(chain), std::move(form)}), report_.patterns.size(), with_weight});
      }
      report_.patterns.push_back(std::move(pattern));
    }
    for (auto& kept : kept_) forget_activations(kept.fused->chain);
    try {
      if (!options_.keep_weights) keep_needed_weights();
      if (kept_.empty()) return {model_, report_};
      const auto whole = measure_whole(model_, run_by(model_, plan()), example_, device, options_);
      report_.seconds_before = whole.before;
      report_.seconds_after = whole.after;
      report_.error = whole.error;
      if (!(whole.error <= options_.max_error)) return keep_nothing("the error of the complete model is " + shortest(whole.error));
      if (!(1 - whole.after / whole.before >= std::min(options_.min_saving, 0.0)))
        return keep_nothing(
            str_cat("the complete forward would take ", shortest(std::round(100 * whole.after / whole.before) / 100), " times as long"));
    } catch (const std::exception& e) {
      return keep_nothing("the fused model fails: " + detail::first_line(e.what()));
    }
    for (auto* fused : without_weight()) release(*fused, parameters_);
    return {run_by(model_, plan()), report_};
  }

 private:
  std::shared_ptr<const detail::FusionPlan> plan() const {
    std::vector<std::shared_ptr<const FusedChain>> chains;
    for (const auto& kept : kept_) chains.push_back(kept.fused);
    return std::make_shared<const detail::FusionPlan>(std::move(chains));
  }

  // Returns the chains whose weights are released.
  std::vector<FusedChain*> without_weight() const {
    std::vector<FusedChain*> out;
    for (const auto& kept : kept_)
      if (!options_.keep_weights && kept.fused->chain.only_reader) out.push_back(kept.fused.get());
    return out;
  }

  FusedModel keep_nothing(const std::string& reason) {
    for (auto& p : report_.patterns)
      if (std::exchange(p.kept, false)) p.reason = reason;
    report_.seconds_before = report_.seconds_after = 0;
    return {model_, report_};
  }

  // Runs the example without the weights to find those that are still read. Such a weight stays if the memory limit allows it.
  void keep_needed_weights() {
    if (kept_.empty()) return;
    const at::Tensor want = run_by(model_, plan()).forward(example_);
    const auto candidates = without_weight();
    if (runs_without(candidates, want)) return;
    std::vector<FusedChain*> gone;
    for (auto* fused : candidates) {
      gone.push_back(fused);
      if (runs_without(gone, want)) continue;
      gone.pop_back();
      fused->chain.only_reader = false;
    }
    const auto dropped = std::erase_if(kept_, [&](const Kept& kept) {
      auto& pattern = report_.patterns[kept.pattern];
      if (kept.fused->chain.only_reader) return false;
      pattern.memory_overhead = kept.with_weight;
      pattern.reason = too_much(kept.with_weight, options_, ", since its weight must stay");
      pattern.kept = pattern.reason.empty();
      return !pattern.kept;
    });
    if (dropped > 0) keep_needed_weights();  // the plan has changed
  }

  // Returns whether the example gives `want` without the weights of `chains`. Restores them afterwards.
  bool runs_without(const std::vector<FusedChain*>& chains, const at::Tensor& want) const {
    std::vector<std::function<void()>> undo;
    bool same = false;
    try {
      for (auto* fused : chains) undo.push_back(release(*fused, parameters_));
      same = deviation(run_by(model_, plan()).forward(example_), want) <= options_.max_error;
    } catch (const std::exception&) {  // the forward needs a weight that was replaced
    }
    for (const auto& back : undo) back();
    return same;
  }

  struct Kept {
    std::shared_ptr<FusedChain> fused;
    size_t pattern;      // index in the report
    double with_weight;  // see Choice
  };
  const Model& model_;
  const FuseOptions& options_;
  ParameterSet parameters_;
  at::Tensor example_;
  std::vector<Kept> kept_;
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
