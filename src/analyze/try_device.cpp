#include "npu_train/analyze/try_device.hpp"

#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "analyze/trial_failure.hpp"
#include "npu_train/base/batch.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/nn/op_observer.hpp"
#include "npu_train/optim/sgd.hpp"
#include "npu_train/report/number.hpp"
#include "npu_train/report/text_table.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {
namespace {

using Verdict = Trial::Verdict;
constexpr const char* kTrials[] = {"loaded", "moved", "forward", "loss", "backward", "training", "speed", "outputs"};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The operator that began last.
class LastOperator final : public OpListener {
 public:
  void op_begins(const SeenOp& op) override {
    name = op.library + "::" + op.name;
    layer = op.scope;
  }
  void op_ended(const SeenOp& op) override {
    if (const auto dot = op.parameter.rfind('.'); dot != std::string::npos) before = op.parameter.substr(0, dot);
    name.clear();
  }
  bool sees_all() const override { return true; }
  std::string name, layer, before;  // before: the layer whose parameters were used last
};

struct Tensors {
  std::vector<at::Tensor> values;
};

Tensors copies(Task& task) {
  Tensors out;
  const at::NoGradGuard no_grad;
  for (const auto& p : task.parameters()) out.values.push_back(p.value.detach().cpu().clone());
  for (const auto& [name, buffer] : task.buffers()) out.values.push_back(buffer.detach().cpu().clone());
  return out;
}

void restore(Task& task, const Tensors& from) {
  const at::NoGradGuard no_grad;
  size_t i = 0;
  for (const auto& p : task.parameters()) p.value.data().copy_(from.values[i++]);
  for (auto& [name, buffer] : task.buffers()) buffer.copy_(from.values[i++]);
}

class TrialRun {
 public:
  TrialRun(Task& task, const Batch& batch, const Device& device, const TrialOptions& options)
      : task_(task), batch_(batch), device_(device), options_(options) {
    report_.device = device.str();
    for (const char* name : kTrials) report_.trials.push_back({name, Verdict::NotReached, 0, ""});
  }

  TrialReport run() {
    const auto weights = copies(task_);
    // first: autograd counts the devices at the first backward of the process
    if (trial(0, [&] { return resolve_device(device_.str()).str(); })) {
      host();
      restore(task_, weights);
      if (on_device()) task_.to(at::kCPU);
    }
    restore(task_, weights);
    task_.parameters().zero_grad();
    return std::move(report_);
  }

 private:
  // What the device is compared with.
  void host() {
    try {
      expected_ = evaluate(batch_);
      step(batch_);
      host_seconds_ = best_step(batch_);
    } catch (...) {
      const auto error = translate_current_exception("try_device");
      throw Error(ErrorKind::Usage, "try_device", std::string("the model does not run on the CPU: ") + error.what(), "",
                  std::current_exception());
    }
  }

  // Whether the task was moved.
  bool on_device() {
    bool moved = false;
    std::optional<Batch> batch;
    at::Tensor outputs;
    const bool all = trial(1,
                           [&] {
                             moved = true;
                             task_.to(device_.c10());
                             batch = to_device(batch_, device_);
                             synchronize();
                             return std::string();
                           }) &&
                     trial(2, [&] { return outputs = evaluate(*batch), shape_of(outputs); }) && trial(3, [&] { return loss(*batch); }) &&
                     trial(4, [&] { return backward(*batch); }) && trial(5, [&] { return training(*batch); });
    if (all) {
      trial(6, [&] { return speed(*batch); });
      judge(outputs);
    }
    return moved;
  }

  bool trial(size_t index, const std::function<std::string()>& body) {
    auto& line = report_.trials[index];
    LastOperator last;
    const auto before = now();
    try {
      const OpObserver observer(task_.parameters(), last, /*every=*/true);
      line.detail = body();
      line.verdict = Verdict::Passed;
    } catch (...) {
      const auto error = translate_current_exception("try_device");
      const auto failure = detail::classify(error, last.name, last.layer.empty() ? last.before : last.layer, line.name);
      line.verdict = Verdict::Failed;
      line.detail = error.what();
      report_.failure = failure.kind;
      report_.place = failure.place;
      report_.remedy = failure.remedy;
    }
    line.seconds = now() - before;
    return line.verdict == Verdict::Passed;
  }

  void synchronize() const { backend_of(device_).synchronize(device_); }

  at::Tensor evaluate(const Batch& batch) {
    const at::NoGradGuard no_grad;
    task_.set_training(false);
    at::Tensor out = task_.predict(batch.input());
    return out.detach().to(at::kCPU, at::kFloat);
  }

  static std::string shape_of(const at::Tensor& outputs) { return "outputs " + c10::str(outputs.sizes()); }

  StepOutput forward(const Batch& batch) {
    task_.set_training(true);
    auto out = task_.training_step(batch);
    check_output(out, "try_device");
    return out;
  }

  std::string loss(const Batch& batch) {
    const double value = forward(batch).loss.item<double>();
    check(std::isfinite(value), ErrorKind::Diverged, "loss", "it is ", value);
    return short_number(value, 5);
  }

  std::string backward(const Batch& batch) {
    forward(batch).loss.backward();
    synchronize();
    int64_t without = 0;
    for (const auto& p : task_.parameters()) {
      if (!p.value.grad().defined()) {
        ++without;
        continue;
      }
      check(at::isfinite(p.value.grad()).all().item<bool>(), ErrorKind::Diverged, "gradients", p.name, " has some that are not finite");
    }
    task_.parameters().zero_grad();
    return without == 0 ? "every parameter has a gradient" : std::to_string(without) + " parameters have no gradient";
  }

  void step(const Batch& batch) {
    Sgd sgd(task_.parameters(), {.lr = options_.lr});
    forward(batch).loss.backward();
    sgd.step();
    task_.parameters().zero_grad();
  }

  std::string training(const Batch& batch) {
    Sgd sgd(task_.parameters(), {.lr = options_.lr});
    double first = 0, last = 0;
    for (int64_t i = 0; i < options_.epochs * options_.steps_per_epoch; ++i) {
      const auto out = forward(batch);
      out.loss.backward();
      sgd.step();
      task_.parameters().zero_grad();
      last = out.loss.item<double>();
      if (i == 0) first = last;
      check(std::isfinite(last), ErrorKind::Diverged, "training", "the loss of step ", i, " is ", last);
    }
    return std::to_string(options_.epochs) + " epochs of " + std::to_string(options_.steps_per_epoch) + " steps, loss " +
           short_number(first, 5) + " to " + short_number(last, 5);
  }

  // Of three, in seconds.
  double best_step(const Batch& batch) {
    double best = 0;
    for (int i = 0; i < 3; ++i) {
      const auto before = now();
      step(batch);
      synchronize();
      const double took = now() - before;
      best = i == 0 ? took : std::min(best, took);
    }
    return best;
  }

  std::string speed(const Batch& batch) {
    const double best = best_step(batch);
    report_.speed_up = host_seconds_ / best;
    return short_number(report_.speed_up, 3) + " times the CPU's (" + short_number(1e3 * best, 3) + " ms a step)";
  }

  // Of the forward before anything was trained.
  void judge(const at::Tensor& outputs) {
    auto& line = report_.trials.back();
    const double largest = expected_.abs().max().item<double>();
    const double difference = (outputs - expected_).abs().max().item<double>();
    report_.max_error = difference == 0 ? 0 : difference / (largest > 0 ? largest : 1);
    line.detail = "largest difference to the CPU " + short_number(report_.max_error, 3) + " of the largest output";
    line.verdict = report_.max_error < options_.passes_below  ? Verdict::Passed
                   : report_.max_error < options_.noted_below ? Verdict::Note
                                                              : Verdict::Failed;  // NaN fails too
    if (line.verdict == Verdict::Note) line.detail += ": more than usual in fp32";
    if (line.verdict != Verdict::Failed) return;
    report_.failure = "numbers";
    report_.place = "outputs of the model";
    report_.remedy = "dump both sides and compare them: train_app ... dump.level=module, npu_tool compare; it names the layer";
  }

  Task& task_;
  const Batch& batch_;
  Device device_;
  TrialOptions options_;
  TrialReport report_;
  at::Tensor expected_;
  double host_seconds_ = 0;
};

const char* verdict_name(Verdict verdict) {
  constexpr const char* names[] = {"passed", "note", "failed", "not reached"};
  return names[static_cast<size_t>(verdict)];
}

}  // namespace

TrialReport try_device(Task& task, const Batch& batch, const std::string& device, const TrialOptions& options) {
  const auto where = Device::parse(device);
  return TrialRun(task, batch, where, options).run();
}

std::string to_text(const TrialReport& report) {
  TextTable table({"trial", "verdict", "seconds", "what was seen"});
  std::string said;
  for (const auto& t : report.trials) {
    const bool error = t.verdict == Verdict::Failed && t.seconds > 0;
    if (error) said = "  said: " + t.detail + "\n";
    table.add_row({t.name, verdict_name(t.verdict), short_number(t.seconds, 3), error ? "see below" : t.detail});
  }
  std::string out = table.str(0);
  if (report.passed()) return out + "\n" + report.device + ": the model runs and trains\n";
  return out + "\n" + report.device + ": failed (" + report.failure + "): " + report.place + "\n" + said + "  try:  " + report.remedy +
         "\n";
}

Json to_json(const TrialReport& report) {
  auto trials = Json::array();
  for (const auto& t : report.trials)
    trials.push_back(Json::object({{"name", t.name}, {"verdict", verdict_name(t.verdict)}, {"seconds", t.seconds}, {"detail", t.detail}}));
  return Json::object({{"device", report.device},
                       {"passed", report.passed()},
                       {"failure", report.failure},
                       {"place", report.place},
                       {"remedy", report.remedy},
                       {"max_error", report.max_error},
                       {"speed_up", report.speed_up},
                       {"trials", std::move(trials)}});
}

}  // namespace npu_train
