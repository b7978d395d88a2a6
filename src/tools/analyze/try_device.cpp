#include "npu_train/tools/analyze/try_device.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/trace/op_observer.hpp"
#include "npu_train/train/passes.hpp"
#include "npu_train/train/step.hpp"
#include "tools/analyze/trial_failure.hpp"

namespace npu_train {
namespace {

using Verdict = Trial::Verdict;
constexpr const char* kTrials[] = {"loaded", "moved", "forward", "loss", "backward", "training", "speed", "outputs"};

// Records the running operator, which may fail, and the copies from the device to the host.
class Watch final : public OpListener {
 public:
  void op_begins(const SeenOp& op) override {
    name = op.library + "::" + op.name;
    layer = op.scope;
  }
  void op_ended(const SeenOp& op) override {
    if (const auto dot = op.parameter.rfind('.'); dot != std::string::npos) before = op.parameter.substr(0, dot);
    if ((op.name == "to" || op.name == "_to_copy") && op.inputs[0].isTensor() && !op.inputs[0].toTensor().is_cpu() && op.output.defined() &&
        op.output.is_cpu())
      ++moved_back[place()];
    name.clear();
  }
  bool sees_all() const override { return true; }
  std::string place() const { return layer.empty() ? before : layer; }

  std::string name, layer, before;  // before: the layer whose parameters were last used
  std::map<std::string, int64_t> moved_back;
};

struct Tensors {
  std::vector<at::Tensor> values;
};

class TrialRun {
 public:
  TrialRun(Task& task, const Batch& batch, const Device& device, const TrialOptions& options)
      : task_(task), parameters_(task.parameters()), batch_(batch), device_(device), options_(options) {
    report_.device = device.str();
    for (const char* name : kTrials) report_.trials.push_back({name, Verdict::NotReached, 0, ""});
  }

  TrialReport run() {
    const auto weights = copies();
    // Loads the device first, because autograd counts the devices at the first backward pass of the process.
    if (trial(0, [&] { return resolve_device(device_.str()).str(); })) {
      host();
      restore(weights);
      if (on_device()) move(Device());
    }
    restore(weights);
    parameters_.zero_grad();
    return std::move(report_);
  }

 private:
  // Computes the reference results on the CPU.
  void host() {
    try {
      expected_ = predict(batch_).to(at::kFloat);
      backward(batch_);
      const auto before = copies();
      host_seconds_ = best_step(batch_);
      learns_ = learnt(before);
    } catch (...) {
      const auto error = translate_current_exception("try_device");
      throw Error(ErrorKind::Usage, "try_device", std::string("the model does not run on the CPU: ") + error.what(), "",
                  std::current_exception());
    }
  }

  // Runs the trials on the device. Returns whether the task could be moved to it.
  bool on_device() {
    bool moved = false;
    std::optional<Batch> batch;
    at::Tensor outputs;
    const bool all = trial(1,
                           [&] {
                             moved = true;
                             move(device_);
                             batch = to_device(batch_, device_);
                             synchronize();
                             return all_moved();
                           }) &&
                     trial(2, [&] { return outputs = predict(*batch), shape_of(outputs); }) && trial(3, [&] { return loss(*batch); }) &&
                     trial(4, [&] { return backward(*batch); }) && trial(5, [&] { return training(*batch); });
    if (all && trial(6, [&] { return speed(*batch); })) judge(outputs.to(at::kCPU, at::kFloat));
    return moved;
  }

  bool trial(size_t index, const std::function<std::string()>& body) {
    auto& line = report_.trials[index];
    Watch watch;
    const auto before = SteadyClock().now();
    try {
      const OpObserver observer(parameters_, watch, /*every=*/true);
      line.verdict = Verdict::Passed;
      line.detail = body();
    } catch (...) {
      const auto error = translate_current_exception("try_device");
      const auto failure = detail::classify(error, watch.name, watch.place(), line.name);
      line.verdict = Verdict::Failed;
      line.error = line.detail = error.what();
      report_.failure = failure.kind;
      report_.place = failure.place;
      report_.remedy = failure.remedy;
    }
    line.seconds = SteadyClock().now() - before;
    if (line.verdict == Verdict::Passed && index >= 2 && !watch.moved_back.empty()) note_moved_back(watch, line);
    return line.verdict != Verdict::Failed;
  }

  static void note_moved_back(const Watch& watch, Trial& line) {
    std::vector<std::string> places;
    int64_t copies = 0;
    for (const auto& [place, n] : watch.moved_back) {
      places.push_back(place.empty() ? "the model's input" : place);
      copies += n;
    }
    line.verdict = Verdict::Note;
    line.detail += "; copied back to the host " + std::to_string(copies) + (copies == 1 ? " time" : " times") + ", after " + join(places);
  }

  // Checks that all parameters and buffers were moved. A tensor that its module does not register stays on its device.
  std::string all_moved() const {
    std::vector<std::string> behind;
    size_t all = 0;
    const auto look = [&](const std::string& name, const at::Tensor& value) {
      ++all;
      if (value.device() != device_.c10()) behind.push_back(name);
    };
    for (const auto& p : parameters_) look(p.name, p.value);
    for (const auto& [name, buffer] : task_.buffers()) look(name, buffer);
    check(behind.empty(), ErrorKind::Usage, "moved", behind.size(), " of ", all, " parameters and buffers were not moved, such as ",
          behind.empty() ? "" : behind.front());
    return std::to_string(all) + " parameters and buffers";
  }

  void synchronize() const { backend_of(device_).synchronize(device_); }

  at::Tensor predict(const Batch& batch) {
    const at::NoGradGuard no_grad;
    task_.set_training(false);
    const at::Tensor out = task_.forward(batch).first().detach();
    synchronize();
    return out;
  }

  std::string shape_of(const at::Tensor& outputs) const {
    const bool here = outputs.device() == device_.c10();
    return "outputs " + str_cat(outputs.sizes()) + (here ? "" : ", on " + outputs.device().str());
  }

  std::string loss(const Batch& batch) {
    task_.set_training(true);
    const double value = detail::training_output(task_, precision_, batch).loss.item<double>();
    check(std::isfinite(value), ErrorKind::Diverged, "loss", "the loss is ", value);
    return short_number(value, 5);
  }

  std::string backward(const Batch& batch) {
    task_.set_training(true);
    detail::run_window(task_, precision_, {batch});
    synchronize();
    std::set<std::string> without;
    for (const auto& p : parameters_) {
      if (!p.value.grad().defined()) {
        without.insert(p.name);
        continue;
      }
      check(at::isfinite(p.value.grad()).all().item<bool>(), ErrorKind::Diverged, "gradients", p.name, " has non-finite gradients");
    }
    parameters_.zero_grad();
    if (!without_) without_ = without;
    for (const auto& name : without)
      check(without_->count(name) != 0, ErrorKind::Diverged, "gradients", name, " has no gradient; on the CPU it has one");
    return without.empty() ? "every parameter has a gradient"
                           : std::to_string(without.size()) + " parameters have no gradient, as on the CPU";
  }

  std::string training(const Batch& batch) {
    Sgd sgd(parameters_, {.lr = options_.lr});
    TrainStep step(task_, precision_, sgd, nullptr, alone_, observers_, {});
    const auto before = copies();
    double first = 0, last = 0;
    for (int64_t i = 0; i < options_.epochs * options_.steps_per_epoch; ++i) {
      last = step.run({batch}).packed[0].item<double>();
      if (i == 0) first = last;
      check(std::isfinite(last), ErrorKind::Diverged, "training", "the loss of step ", i, " is ", last);
    }
    check(!learns_ || learnt(before), ErrorKind::Diverged, "training", "no parameter has changed; on the CPU they change");
    return std::to_string(options_.epochs) + " epochs of " + std::to_string(options_.steps_per_epoch) +
           " steps (in fp32, with SGD), loss " + short_number(first, 5) + " to " + short_number(last, 5);
  }

  void move(const Device& device) {
    task_.to(device.c10());
    parameters_ = task_.parameters();  // a user-defined task may have created new tensors
  }

  Tensors copies() {
    Tensors out;
    const at::NoGradGuard no_grad;
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    for (const auto& p : parameters_) out.values.push_back(p.value.detach().cpu().clone());
    for (const auto& [name, buffer] : task_.buffers()) out.values.push_back(buffer.detach().cpu().clone());
    return out;
  }

  void restore(const Tensors& from) {
    const at::NoGradGuard no_grad;
    size_t i = 0;
    for (const auto& p : parameters_) p.value.data().copy_(from.values[i++]);
    for (auto& [name, buffer] : task_.buffers()) buffer.copy_(from.values[i++]);
  }

  bool learnt(const Tensors& before) const {
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    size_t i = 0;
    for (const auto& p : parameters_)
      if (!at::equal(p.value.detach().cpu(), before.values[i++])) return true;
    return false;
  }

  // Returns the best of three steps, in seconds.
  double best_step(const Batch& batch) {
    Sgd sgd(parameters_, {.lr = options_.lr});
    TrainStep step(task_, precision_, sgd, nullptr, alone_, observers_, {});
    double best = 0;
    for (int i = 0; i < 3; ++i) {
      const auto before = SteadyClock().now();
      step.run({batch});
      synchronize();
      const double took = SteadyClock().now() - before;
      best = i == 0 ? took : std::min(best, took);
    }
    return best;
  }

  std::string speed(const Batch& batch) {
    const double best = best_step(batch);
    const auto took = short_number(1e3 * best, 3) + " ms per step (in fp32, with SGD)";
    if (device_.is_cpu() || device_.kind == "sim_npu") {
      report_.trials[6].verdict = Verdict::NotJudged;
      return took + "; " + device_.kind + " computes on this CPU, so the time does not represent a chip";
    }
    report_.speed_up = host_seconds_ / best;
    return short_number(report_.speed_up, 3) + " times the CPU's speed: " + took;
  }

  // Judges the outputs of the forward pass, which ran before the training.
  void judge(const at::Tensor& outputs) {
    auto& line = report_.trials.back();
    const double largest = expected_.abs().max().item<double>();
    const double difference = (outputs - expected_).abs().max().item<double>();
    report_.max_error = difference == 0 ? 0 : difference / (largest > 0 ? largest : 1);
    line.detail = "largest difference to the CPU " + short_number(report_.max_error, 3) + " of the largest output";
    line.verdict = report_.max_error < options_.passes_below  ? Verdict::Passed
                   : report_.max_error < options_.noted_below ? Verdict::Note
                                                              : Verdict::Failed;  // NaN fails, too
    if (line.verdict == Verdict::Note) line.detail += ": larger than usual in fp32";
    if (line.verdict != Verdict::Failed) return;
    report_.failure = "numbers";
    report_.place = "outputs of the model";
    report_.remedy = "dump both sides and compare them: train_app ... dump.level=module, npu_tool compare; this identifies the layer";
  }

  Task& task_;
  ParameterSet parameters_;
  const Batch& batch_;
  Device device_;
  TrialOptions options_;
  Precision precision_;  // 32-true
  SingleDeviceStrategy alone_;
  const Observers observers_;
  TrialReport report_;
  at::Tensor expected_;
  double host_seconds_ = 0;
  bool learns_ = false;                           // whether parameters change on the CPU
  std::optional<std::set<std::string>> without_;  // parameters without a gradient on the CPU
};

const char* verdict_name(Verdict verdict) {
  constexpr const char* names[] = {"passed", "note", "failed", "not reached", "not judged"};
  return names[static_cast<size_t>(verdict)];
}

}  // namespace

TrialReport try_device(Task& task, const Batch& batch, const std::string& device, const TrialOptions& options) {
  check(options.epochs >= 1 && options.steps_per_epoch >= 1, ErrorKind::Usage, "try_device", "epochs is ", options.epochs,
        " and steps_per_epoch ", options.steps_per_epoch, "; both must be at least 1");
  for (const double value : {options.lr, options.passes_below, options.noted_below})
    check(value >= 0 && value < 1e30, ErrorKind::Usage, "try_device", "lr is ", options.lr, ", passes_below ", options.passes_below,
          " and noted_below ", options.noted_below, "; they must be finite and not negative");
  const auto where = Device::parse(device);
  return translated("try_device", [&] { return TrialRun(task, batch, where, options).run(); });
}

Report report_of(const TrialReport& report) {
  Report out("Trial of " + report.device, Json::object({{"device", report.device},
                                                        {"passed", report.passed()},
                                                        {"failure", report.failure},
                                                        {"place", report.place},
                                                        {"remedy", report.remedy},
                                                        {"max_error", report.max_error},
                                                        {"speed_up", report.speed_up}}));
  ReportTable table;
  std::string error;
  for (const auto& t : report.trials) {
    if (!t.error.empty()) error = t.error;
    const auto tone = t.verdict == Verdict::Failed ? Tone::Bad : t.verdict == Verdict::Passed ? Tone::Good : Tone::Plain;
    table.add({both("name", "trial", t.name), both("verdict", toned(verdict_name(t.verdict), tone)),
               both("seconds", number_value(t.seconds, 3)),
               both("detail", "observation", {t.detail, t.error.empty() ? t.detail : "see above"}), data("error", t.error)});
  }
  if (report.passed()) {
    out.say(report.device + ": the model runs and trains", Tone::Good);
  } else {
    out.say(report.device + ": failed (" + report.failure + "): " + report.place, Tone::Bad);
    if (!error.empty()) out.remarks("message", {error});
    out.remarks("try", {report.remedy});
  }
  out.table("trials", std::move(table));
  return out;
}

}  // namespace npu_train
