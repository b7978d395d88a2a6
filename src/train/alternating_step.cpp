#include "train/alternating_step.hpp"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sqrt.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/train/divided_parameters.hpp"

namespace npu_train::detail {
namespace {

// The task as one of its optimizers sees it.
class TaskOfOptimizer final : public Task {
 public:
  TaskOfOptimizer(AlternatingTask& whole, std::string name, ParameterSet parameters)
      : whole_(whole), name_(std::move(name)), parameters_(std::move(parameters)) {}

  StepOutput training_step(const ForwardContext& context) override {
    auto out = whole_.loss_of(name_, context);
    auto fields = out.outputs.fields();
    if (out.loss.defined()) fields.emplace_back(name_ + "_loss", out.loss.detach());
    out.outputs = Outputs(std::move(fields));
    return out;
  }
  at::Tensor predict(const at::Tensor& input) override { return whole_.predict(input); }
  Outputs forward(const Batch& batch) override { return whole_.forward(batch); }
  double weight_of(int64_t samples) const override { return whole_.weight_of(samples); }
  std::string weight_unit() const override { return whole_.weight_unit(); }
  ParameterSet parameters() override { return parameters_; }
  // Returns all buffers, because a pass also changes the running statistics of networks that it does not train.
  std::vector<NamedTensor> buffers() override { return whole_.buffers(); }
  std::vector<std::string> norm_parameters() override { return whole_.norm_parameters(); }
  std::map<std::string, std::string> module_types() override { return whole_.module_types(); }
  std::vector<std::string> metric_names() const override { return whole_.metric_names(); }
  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override { return whole_.metric_sums(output, batch); }
  void set_training(bool on) override { whole_.set_training(on); }
  void to(c10::Device device) override { whole_.to(device); }

 private:
  AlternatingTask& whole_;
  std::string name_;
  ParameterSet parameters_;
};

// During its lifetime, these parameters do not require a gradient.
class Untrained {
 public:
  void add(const ParameterSet& parameters) {
    for (const auto& p : parameters)
      if (p.value.requires_grad()) trained_.push_back(p.value.set_requires_grad(false));
  }
  Untrained() = default;
  ~Untrained() {
    for (const auto& t : trained_) t.set_requires_grad(true);
  }
  Untrained(const Untrained&) = delete;
  Untrained& operator=(const Untrained&) = delete;

 private:
  std::vector<at::Tensor> trained_;
};

// Adds the results of steps over one window.
class ResultSum {
 public:
  void add(const StepResult& one) {
    const at::NoGradGuard no_grad;
    const auto n = one.packed.numel();
    const auto norm = one.packed.narrow(0, n - 1, 1);
    const auto numbers = at::cat({one.packed.narrow(0, 0, 1) / one.loss_weight, one.packed.narrow(0, 1, n - 2), norm * norm});
    all_.packed = all_.packed.defined() ? all_.packed + numbers : numbers;
    if (all_.empty && !one.empty) {
      all_.weight = one.weight;
      all_.samples = one.samples;
    }
    all_.micro_batches = one.micro_batches;
    all_.taken = all_.taken && (one.taken || one.empty);
    all_.empty = all_.empty && one.empty;
  }
  StepResult result() {
    const at::NoGradGuard no_grad;
    const auto n = all_.packed.numel();
    all_.packed = at::cat({all_.packed.narrow(0, 0, n - 1), all_.packed.narrow(0, n - 1, 1).sqrt()});
    all_.taken = all_.taken && !all_.empty;
    return std::move(all_);
  }

 private:
  StepResult all_{.packed = {}, .loss_weight = 1, .weight = 0, .samples = 0, .micro_batches = 0, .taken = true, .empty = true};
};

}  // namespace

struct AlternatingStep::Part {
  Part(AlternatingTask& whole, std::string of, const std::shared_ptr<const ParameterSet>& own, const OptimizerParts& by,
       WeightAverage* average, const Observers& observers, StepOptions options)
      : name(std::move(of)), every(whole.every(name)), parameters(own), task(std::make_unique<TaskOfOptimizer>(whole, name, *own)) {
    options.parameters = parameters;
    auto* const own_average = average != nullptr && average->options().of == name ? average : nullptr;
    step = std::make_unique<TrainStep>(*task, *by.precision, *by.optimizer, own_average, *by.strategy, observers, std::move(options));
  }
  std::string name;
  int64_t every;
  std::shared_ptr<const ParameterSet> parameters;  // parameters of the model that this optimizer updates
  std::unique_ptr<Task> task;
  std::unique_ptr<TrainStep> step;
};

AlternatingStep::AlternatingStep(AlternatingTask& task, const ParameterSet& parameters, const std::vector<OptimizerParts>& optimizers,
                                 WeightAverage* average, const Observers& observers, const StepOptions& options) {
  auto divided = divided_parameters(task, parameters);
  check(divided.size() == optimizers.size(), ErrorKind::Usage, "AlternatingTask", "the task has ", divided.size(), " optimizers, and ",
        optimizers.size(), " are given");
  for (size_t i = 0; i < divided.size(); ++i) {
    auto& [name, own] = divided[i];
    check(name == optimizers[i].name, ErrorKind::Usage, "AlternatingTask", "the optimizer ", optimizers[i].name,
          " is given in the place of ", name);
    parts_.push_back(std::make_unique<Part>(task, name, std::make_shared<const ParameterSet>(std::move(own)), optimizers[i], average,
                                            observers, options));
  }
  current_ = parts_.front().get();
}

AlternatingStep::~AlternatingStep() = default;

StepResult AlternatingStep::run(const std::vector<Batch>& window, double full_weight) {
  ResultSum sum;
  for (const auto& part : parts_) {
    if ((attempts_ + 1) % part->every != 0) continue;
    current_ = part.get();
    part->step->set_next(attempts_);
    Untrained others;
    for (const auto& other : parts_)
      if (other != part) others.add(*other->parameters);
    const PortableRandom::MicroBatch draws(part->name, /*attempt=*/0, /*number=*/0);  // gives each optimizer its own random numbers
    sum.add(part->step->run(window, full_weight));
  }
  ++attempts_;
  return sum.result();
}

void AlternatingStep::undo_window() {
  throw Error(ErrorKind::Usage, "AlternatingStep", "a window of several optimizers cannot be repeated; hint: trainer.on_oom=stop");
}

Phase AlternatingStep::phase() const { return current_->step->phase(); }
int AlternatingStep::micro_batch() const { return current_->step->micro_batch(); }

void AlternatingStep::set_attempts(int64_t attempts) {
  attempts_ = attempts;
  for (const auto& part : parts_) part->step->set_attempts(attempts / part->every);
}

}  // namespace npu_train::detail
