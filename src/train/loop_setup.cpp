// Construction of a loop from its parts.
#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/train/divided_parameters.hpp"
#include "npu_train/train/monitors.hpp"
#include "npu_train/train/task.hpp"
#include "train/alternating_step.hpp"
#include "train/loop_jobs.hpp"
#include "train/optimizer_parts.hpp"
#include "train/window_graph.hpp"

namespace npu_train {
namespace {

// Returns the parameters of the model that the optimizer updates.
ParameterSet parameters_of(const Optimizer& optimizer, const ParameterSet& all) {
  return all.filter([&](const Parameter& p) { return optimizer.parameters().find(p.name) != nullptr; });
}

}  // namespace

double LoopParts::loss_scale() const {
  double out = precision->scale();
  for (const auto& one : optimizers) out = std::min(out, one.precision->scale());
  return out;
}

TrainLoop::TrainLoop(LoopParts parts, TrainerOptions options, CheckpointOptions checkpoint, EarlyStoppingOptions early_stopping)
    : parts_(detail::with_optimizers(std::move(parts))), options_(std::move(options)), checkpoint_(std::move(checkpoint)) {
  check_limits(options_, "trainer");
  check_limits(checkpoint_, "checkpoint");
  check(options_.on_oom != "retry" || parts_.strategy == nullptr || parts_.strategy->ranks().size() == 1, ErrorKind::Usage,
        "trainer.on_oom",
        "retry works for one rank: with several, the others would wait for the one that is out of memory; hint: trainer.on_oom=stop and a "
        "smaller data.batch_size");
  if (!parts_.parameters) parts_.parameters = std::make_shared<const ParameterSet>(parts_.task->parameters());
  step_ = make_step();
  if (checkpoint_.monitor == "auto") {
    const auto names = validates() ? all_metric_names(*parts_.task) : step_metric_names(*parts_.task);
    checkpoint_.monitor = (validates() ? "val/" : "train/") + (names.empty() ? "loss" : names.front());
  }
  detail::check_monitors(*parts_.task, checkpoint_, early_stopping,
                         parts_.schedule != nullptr && parts_.schedule->plateau() != nullptr ? parts_.schedule->plateau()->monitor : "");
  jobs_ = std::make_unique<Jobs>(parts_, options_, checkpoint_, early_stopping, *step_, observers_,
                                 Jobs::Hooks{.state = [this](StateSlices& own) { return state_with(&own); },
                                             .meta = [this] { return meta(); },
                                             .checkpoint_written = [this](const std::string& path) { note_checkpoint(path); }});
  if (parts_.train_loader != nullptr)
    at_.effective_batch = parts_.train_loader->options().batch_size * options_.accumulate_grad_batches * parts_.strategy->ranks().size();
  parts_.task->set_training(true);
}

std::unique_ptr<WindowStep> TrainLoop::make_step() {
  auto* const alternating = dynamic_cast<AlternatingTask*>(parts_.task);
  auto* const of_steps = parts_.average != nullptr && parts_.average->follows_steps() ? parts_.average : nullptr;
  const bool retries = options_.on_oom == "retry";
  StepOptions options{.clip_value = options_.gradient_clip_val,
                      .clip_by_norm = options_.gradient_clip_algorithm == "norm",
                      .on_overflow = [this](const OverflowReport& report) { note_overflow(report); },
                      .detect_anomaly = options_.detect_anomaly,
                      .keep_start = retries,
                      .last_skip = options_.max_consecutive_skips,
                      .sync_batchnorm = options_.sync_batchnorm,
                      .parameters = parts_.parameters};
  if (alternating != nullptr) {
    check(!retries, ErrorKind::Usage, "trainer.on_oom",
          "retry repeats a window, and in a task of several optimizers the first ones have "
          "stepped already; allowed: stop");
    check(parts_.strategy->ranks().size() == 1 || dynamic_cast<ComparesRanks*>(parts_.task) == nullptr, ErrorKind::Usage, "AlternatingTask",
          "a task of several optimizers cannot compare samples with those of other ranks (ComparesRanks); allowed: one process");
    for (const auto& one : parts_.optimizers) detail::check_complete_states(*one.strategy);
    if (options_.cuda_graphs == "true") log_warning("trainer.cuda_graphs: off: a task of several optimizers is not captured");
    return std::make_unique<detail::AlternatingStep>(*alternating, *parts_.parameters, parts_.optimizers, of_steps, observers_, options);
  }
  check(parts_.optimizers.size() == 1, ErrorKind::Usage, "TrainLoop", parts_.optimizers.size(),
        " optimizers are given, and the task has one; hint: AlternatingTask");
  if (retries) options.bring = [device = parts_.device](const Batch& batch) { return to_device(batch, device); };
  options.graphs = detail::captures_graphs(options_, parts_.device, *parts_.task, *parts_.strategy);
  return std::make_unique<TrainStep>(*parts_.task, *parts_.precision, *parts_.optimizer, of_steps, *parts_.strategy, observers_,
                                     std::move(options));
}

TrainLoop::~TrainLoop() = default;

TrainLoop::Jobs::Jobs(const LoopParts& parts, const TrainerOptions& options, const CheckpointOptions& checkpoint,
                      const EarlyStoppingOptions& early_stopping, WindowStep& step, const Observers& observers, Hooks hooks)
    : limits(options, parts.clock, *parts.stop, *parts.strategy),
      memory({.task = *parts.task,
              .step = step,
              .observers = observers,
              .device = parts.device,
              .enabled = options.on_oom == "retry",
              .train_loader = parts.train_loader,
              .ranks = parts.strategy->ranks().size(),
              .accumulate = options.accumulate_grad_batches,
              .failed = failed}),
      windows({.loader = parts.train_loader,
               .options = options,
               .clock = *parts.clock,
               .observers = observers,
               .step = step,
               .memory = memory,
               .ranks = parts.strategy->ranks()}),
      rate(parts.schedule, parts.optimizers),
      averaging(parts.average, *detail::averaged_optimizer(parts).optimizer, options),
      sums(*parts.task, {.per_sample = parts.flops_per_sample, .of_products = parts.product_flops}),
      divergence(options.max_consecutive_skips),
      evaluation({.task = *parts.task,
                  .precision = *parts.precision,
                  .average = parts.average,
                  .strategy = *parts.strategy,
                  .device = parts.device,
                  .stop = *parts.stop,
                  .failed = failed}),
      ranking(checkpoint),
      early(early_stopping),
      writer({.store = parts.store,
              .strategy = *parts.strategy,
              .enabled = !options.fast_dev_run,
              .async = checkpoint.async,
              .observers = observers,
              .step = step,
              .optimizers = parts.optimizers,
              .config = parts.config,
              .state = std::move(hooks.state),
              .meta = std::move(hooks.meta),
              .not_finite =
                  [this] {
                    diverged({"a parameter is not finite",
                              "lower the learning rate, clip gradients, or check the data; the last good checkpoint is complete"});
                  },
              .written = std::move(hooks.checkpoint_written)}),
      rollback(options.on_divergence == "rollback", parts.strategy->ranks()),
      of_first(parts.optimizers.size() == 1 ? *parts.parameters : parameters_of(*parts.optimizer, *parts.parameters)),
      trained(of_first, *parts.precision, *parts.optimizer, parts.average, *parts.strategy) {}

}  // namespace npu_train
