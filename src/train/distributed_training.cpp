#include "npu_train/train/distributed_training.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/dist/data_parallel.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "train/callbacks/shared_save.hpp"
#include "train/optimizer_parts.hpp"
#include "train/rank_generators.hpp"
#include "train/training_state.hpp"
#include "train/update.hpp"

namespace npu_train {
namespace {

constexpr const char* kTraining = "DistributedTraining";

/// Lists the options that are not in DistOptions, for a comparison of ranks; the reducer compares those of DistOptions.
std::string text_of(const DistributedTrainingOptions& o, const Optimizer& optimizer) {
  auto out = str_cat("clip_norm=", shortest(o.clip_norm), "\noptimizer=", optimizer.name(), " ", to_yaml(optimizer.options()));
  if (const auto& s = o.loss_scale)
    out += str_cat("\nloss_scale=", shortest(s->init_scale), " ", shortest(s->growth_factor), " ", shortest(s->backoff_factor), " ",
                   s->growth_interval, " ", shortest(s->min_scale), " ", shortest(s->max_scale), " ", s->dynamic, " ", s->hysteresis);
  return out;
}

void check_equal_on_ranks(Ranks& ranks, const std::string& options) {
  const auto all = ranks.gather(options);
  for (size_t r = 1; r < all.size(); ++r)
    check(all[r] == all[0], ErrorKind::Usage, kTraining, "rank ", r, " has the options\n", all[r], "\nwhere rank 0 has\n", all[0],
          "\nhint: all ranks must run the same program with the same options");
}

}  // namespace

namespace detail {

/// Presents the module as a Task, so that checkpoints can save its state.
class ModuleState final : public Task {
 public:
  explicit ModuleState(torch::nn::Module& module) : module_(module) {}
  StepOutput training_step(const ForwardContext& /*context*/) override {
    throw Error(ErrorKind::Internal, kTraining, "has no steps of a task");
  }
  at::Tensor predict(const at::Tensor& /*input*/) override { throw Error(ErrorKind::Internal, kTraining, "has no forward of a task"); }
  ParameterSet parameters() override { return parameters_of(module_); }
  std::vector<NamedTensor> buffers() override {
    const auto buffers = buffers_of(module_);
    return {buffers.begin(), buffers.end()};
  }
  void set_training(bool on) override { module_.train(on); }
  void to(c10::Device device) override { module_.to(device); }

 private:
  torch::nn::Module& module_;
};

}  // namespace detail

struct DistributedTraining::Impl {
  Impl(torch::nn::Module& module, std::shared_ptr<ProcessGroup> group, const MakeOptimizer& make_optimizer,
       DistributedTrainingOptions given)
      : options(std::move(given)), model(module) {
    check(group != nullptr, ErrorKind::Usage, kTraining, "no process group is given; hint: ProcessGroup::from_environment()");
    const auto sharding = sharding_of(options.strategy);
    check(sharding.has_value(), ErrorKind::Usage, kTraining, "the strategy is '", options.strategy,
          "'; allowed: ", join({kStrategyNames.begin(), kStrategyNames.end()}));
    check(options.clip_norm >= 0, ErrorKind::Usage, kTraining, "clip_norm is ", options.clip_norm, "; allowed: 0 or more");
    parameters = std::make_shared<const ParameterSet>(model.parameters());
    const auto& all = *parameters;
    check(!all.empty(), ErrorKind::Usage, kTraining, "the model has no parameters");
    const auto device = all[0].value.device();
    strategy = std::make_shared<DataParallelStrategy>(std::move(group), options.dist, device, *sharding);
    strategy->set(options.units);
    auto weights = all.values();
    for (const auto& [name, buffer] : model.buffers()) weights.push_back(buffer);
    check_same_model(weights);
    strategy->broadcast(weights);
    const auto updated = strategy->setup(all.filter([](const Parameter& p) { return p.value.requires_grad(); }));
    optimizer = make_optimizer(updated);
    check(optimizer != nullptr, ErrorKind::Usage, kTraining, "the function returned no optimizer");
    check(!strategy->shards() || optimizer->takes_slices(), ErrorKind::Usage, kTraining, "optimizer ", optimizer->name(),
          " needs complete parameters, and ", options.strategy, " gives each rank slices of them; allowed with it: ddp");
    if (strategy->shards()) optimizer->set_norm_reduction([this](at::Tensor& parts) { strategy->add_over_ranks(parts); });
    check_equal_on_ranks(strategy->ranks(), text_of(options, *optimizer));
    precision = precision_of_own_loop(options.loss_scale, device_of(device));
    precision->set_updated(optimizer->parameters());
    update.emplace(*precision, *optimizer, *strategy, options.clip_norm, /*clip_by_norm=*/true);
  }

  // Compares the ranks' models before any tensor is sent, because sizes could differ.
  void check_same_model(const std::vector<at::Tensor>& weights) {
    std::string text;
    for (const auto& t : weights) text += str_cat(t.scalar_type(), " ", t.sizes(), "\n");
    const auto of_ranks = strategy->ranks().gather(text);
    for (size_t r = 1; r < of_ranks.size(); ++r)
      check(of_ranks[r] == of_ranks[0], ErrorKind::Peer, kTraining, "rank ", r,
            " has a model with other parameters or buffers than rank 0; hint: all ranks must run the same program with the same options");
  }

  bool step() {
    check(in_window, ErrorKind::Usage, kTraining,
          "step() without a window; hint: begin_window() comes before the forward passes of a step");
    in_window = false;
    strategy->finish_gradients({.loss = 1, .samples = 0, .micro_batches = static_cast<double>(passes)});
    const at::NoGradGuard no_grad;
    check_gradients();
    update->unscale(1);
    const bool has_gradient = !optimizer->parameters().grads().empty();
    StepAgreement all{.found_inf = {}, .squares = {}, .sums = at::full({1}, has_gradient ? 1.0 : 0.0)};
    update->agree_and_clip(all);
    check(!options.loss_scale || all.sums.item<double>() > 0, ErrorKind::Usage, kTraining,
          "none of the optimizer's parameters has a gradient, on no rank; hint: backward() comes before step()");
    update->step();
    const bool taken = !precision->last_step_skipped();
    precision->update(update->decision());
    optimizer->zero_grad();
    parameters->zero_grad();
    position.global_step += taken ? 1 : 0;
    position.batches_seen += passes;
    return taken;
  }

  // Rejects fp16 gradients, because a loss scale cannot restore what they have lost.
  void check_gradients() const {
    if (!options.loss_scale) return;
    for (const auto& g : optimizer->parameters().grads())
      check(g.scalar_type() != at::kHalf, ErrorKind::Usage, kTraining,
            "a gradient is fp16: what the scale is to save would be lost again; keep the parameters in fp32 and use Autocast");
  }

  LoopParts parts() {
    LoopParts out;
    out.task = &model;
    out.parameters = parameters;
    out.precision = precision.get();
    out.optimizer = optimizer.get();
    out.strategy = strategy.get();
    out.device = device_of((*parameters)[0].value.device());
    return detail::with_optimizers(std::move(out));
  }

  void save(const std::string& dir) {
    const auto own = parts();
    RunState state;
    StateSlices slices;
    auto generators = detail::generators_of_ranks(strategy->ranks());
    detail::save_training(own, position, &slices, state);
    state["rng"] = std::move(generators);
    const auto meta = detail::checkpoint_meta(own, position);
    if (strategy->writes_parts()) {
      detail::SharedSave shared(strategy->ranks());
      shared.begin(strategy->ranks().is_main() ? std::make_unique<CheckpointFolder>(dir) : nullptr, state, slices, {}, /*async=*/false);
      if (const auto folder = shared.finish()) folder->commit(meta);
    } else if (strategy->ranks().is_main()) {
      save_checkpoint(dir, state, meta, {});
    }
    strategy->ranks().barrier();  // waits until every rank can see the file
  }

  void load(const std::string& dir) {
    ParameterSet own;
    if (strategy->writes_parts()) {
      own = optimizer->parameters();
      if (const auto* errors = strategy->error_feedback())
        for (const auto& slice : errors->state().slices) own.add(slice);
    }
    const auto state = load_checkpoint(dir, {}, own, strategy->shards_parameters() ? own : ParameterSet());
    detail::load_training(parts(), position, detail::SavedParts(state, {}));
    strategy->ranks().barrier();
  }

  DistributedTrainingOptions options;
  detail::ModuleState model;
  std::shared_ptr<const ParameterSet> parameters;  // parameters of the model
  std::shared_ptr<DataParallelStrategy> strategy;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Precision> precision;
  std::optional<detail::Update> update;
  LoopPosition position;
  int64_t micro_batches = 0, passes = 0;  // counts of the current window
  bool in_window = false;
};

DistributedTraining::DistributedTraining(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const MakeOptimizer& make_optimizer,
                                         DistributedTrainingOptions options) {
  translated(kTraining, [&] { impl_ = std::make_unique<Impl>(model, std::move(group), make_optimizer, std::move(options)); });
}
DistributedTraining::~DistributedTraining() = default;

void DistributedTraining::begin_window(int64_t micro_batches) {
  translated(kTraining, [&] {
    auto& self = *impl_;
    self.optimizer->zero_grad();  // drops gradients of an abandoned window
    self.parameters->zero_grad();
    self.precision->begin_step();
    self.strategy->begin_window(micro_batches);
    if (auto* errors = self.strategy->error_feedback()) errors->set_gradient_scale(self.precision->scale());
    self.micro_batches = micro_batches;
    self.passes = 0;
    self.in_window = true;
  });
}

void DistributedTraining::begin_forward() {
  translated(kTraining, [&] {
    check(impl_->in_window, ErrorKind::Usage, kTraining, "begin_forward() without a window; hint: begin_window() comes before");
    impl_->strategy->begin_forward(/*has_batch=*/true);
  });
}

at::Tensor DistributedTraining::run(size_t unit, const UnitForward& forward, const at::Tensor& x) {
  auto* units = impl_->strategy->units();
  return units != nullptr ? units->run(unit, forward, x) : forward(x);
}

void DistributedTraining::backward(const at::Tensor& loss) {
  translated(kTraining, [&] {
    auto& self = *impl_;
    check(self.in_window && self.passes < self.micro_batches, ErrorKind::Usage, kTraining, "backward() number ", self.passes + 1,
          " of a window of ", self.in_window ? self.micro_batches : 0, "; hint: begin_window(", self.passes + 1, ") before the first one");
    check(loss.defined(), ErrorKind::Usage, kTraining, "backward() was given an undefined tensor; allowed: a loss");
    ++self.passes;
    self.strategy->backward(self.precision->scale_loss(loss), /*last=*/self.passes == self.micro_batches);
  });
}

bool DistributedTraining::step() {
  return translated(kTraining, [&] { return impl_->step(); });
}

std::vector<double> DistributedTraining::sums(const std::vector<double>& own) {
  return translated(kTraining, [&] { return impl_->strategy->ranks().sums(own); });
}

int64_t DistributedTraining::global_step() const { return impl_->position.global_step; }
double DistributedTraining::loss_scale() const { return impl_->precision->scale(); }
Optimizer& DistributedTraining::optimizer() { return *impl_->optimizer; }
Strategy& DistributedTraining::strategy() { return *impl_->strategy; }

void DistributedTraining::save(const std::string& dir) {
  translated(kTraining, [&] { impl_->save(dir); });
}
void DistributedTraining::load(const std::string& dir) {
  translated(kTraining, [&] { impl_->load(dir); });
}

}  // namespace npu_train
