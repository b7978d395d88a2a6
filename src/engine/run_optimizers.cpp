// The optimizers of a run, with their precisions, their exchange of gradients and the averages of their parameters, and the schedule of
// their rates.
#include "run_build.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/config_rules.hpp"
#include "engine/rank_setup.hpp"
#include "engine/unit_model.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/dist/offload.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/train/divided_parameters.hpp"

namespace npu_train {
namespace {

/// Returns the number of epochs before the averages of kind swa begin, as detail::Averaging determines it. Error(Usage) if the number of
/// steps in an epoch is not known, and the schedule counts steps or average.start is a share of trainer.max_steps.
double epochs_before_averages(const RunConfig& config, const LrSchedule& schedule, std::optional<int64_t> steps_per_epoch) {
  const double start = config.average.start;
  const bool counts_steps = !schedule.by_epoch() || (start < 1 && config.trainer.max_steps > 0);
  check(
      !counts_steps || steps_per_epoch.value_or(0) > 0, ErrorKind::Usage, "average.lr",
      "the number of steps in an epoch is not known for these data, so the epochs of the averages cannot be counted in steps; allowed with "
      "them: 0; hint: lr_scheduler.interval=epoch, and average.start in epochs");
  if (start >= 1) return start;
  double out = std::numeric_limits<double>::infinity();
  const auto until = [&](int64_t length, double in_epoch) {
    if (length > 0) out = std::min(out, static_cast<double>(config.average.before_averages(length)) / in_epoch);
  };
  until(config.trainer.max_epochs, 1);
  until(config.trainer.max_steps, static_cast<double>(steps_per_epoch.value_or(1)));
  return out;
}

/// Returns whether a run certainly ends before its first average of kind swa. `steps`: number of steps of the complete run; 0 or less if it
/// is not known. If average.start is a share of max_steps, the averages may begin in any epoch, so only average.every decides.
bool never_averages(const AverageOptions& average, const TrainerOptions& trainer, int64_t steps) {
  constexpr double kNever = 1e15;  // average.start of runs that must have no averages: see without_side_effects()
  if (!average.enabled || average.kind != "swa" || average.start >= kNever) return false;
  const auto epochs = trainer.max_epochs;
  const bool by_epochs = average.start >= 1 || (average.every == 0 && trainer.max_steps <= 0);
  const double first = average.start >= 1 ? average.start : static_cast<double>(average.before_averages(epochs));
  return (by_epochs && epochs > 0 && first >= static_cast<double>(epochs)) || (steps > 0 && average.every > steps);
}

/// Logs each group that a rule of the configuration has made, with its rate and weight decay. `of` is the beginning of the line:
/// "optimizer", or "optimizer NAME".
void announce_groups_of(const std::string& of, const Optimizer& optimizer) {
  const auto& groups = optimizer.groups();
  if (groups.size() <= default_groups().size()) return;
  const double decay = decimal_number(detail::option_text(optimizer.options(), "weight_decay")).value_or(0);
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto members = optimizer.parameters().filter([&](const Parameter& p) { return p.group == static_cast<int>(g); });
    if (members.empty()) continue;
    const auto& group = groups[g];
    const double own = group.weight_decay >= 0 ? group.weight_decay : decay;
    log_info(of, " group ", group.name.empty() ? "of all others" : group.name, ": ", members.size(), " parameters, ",
             with_commas(members.numel()), " numbers, lr ", printed("%.10g", optimizer.lr() * group.lr_mult), ", weight decay ",
             printed("%.10g", group.decay_mult * own));
  }
}

}  // namespace

// Gathers weights in low precision, on all ranks or on none. Only for built-in networks, because others may read their weights in other
// ways.
ParameterSet Run::gather_in_low_precision(const RunConfig& config, const ParameterSet& trained, const Parts& parts) const {
  if (!detail::is_own_part(parts.models, builtin_parts().models, config.model.name)) return trained;
  const auto names = autocast_weights(model, config, device, trained, *precision);
  const auto of_ranks = strategy->ranks().gather(join(names, "\n"));
  const bool agreed = std::all_of(of_ranks.begin(), of_ranks.end(), [&](const std::string& other) { return other == of_ranks[0]; });
  if (!agreed && strategy->ranks().is_main())
    log_info("trainer.strategy=zero3: parameters are gathered in fp32, since the ranks do not all compute natively in ",
             dtype_name(precision->low_precision_dtype()));
  if (names.empty() || !agreed) return trained;
  int64_t elements = 0;
  for (const auto& name : names) elements += trained.find(name)->value.numel();
  if (strategy->ranks().is_main())
    log_info("trainer.strategy=zero3: ", with_commas(elements), " of ", with_commas(trained.numel()), " parameters are gathered in ",
             dtype_name(precision->low_precision_dtype()), ", since only autocast reads them");
  return gathered_in(precision->low_precision_dtype(), names, trained);
}

/// False for a task given in code, and for checkpointing with a memory budget, because measuring blocks needs the parameters on the device.
bool Run::moves_in_units(const RunConfig& config) const {
  return model.module != nullptr && strategy->shards_parameters() &&
         CheckpointPlan::parse(config.trainer.gradient_checkpointing).kind != CheckpointPlan::Kind::Budget;
}

/// Makes the optimizer of the task, or all optimizers of a task that has several. Each of several optimizers has its own precision, with
/// its own loss scale and masters, and its own strategy, which exchanges its gradients.
void Run::make_optimizers(const RunConfig& config, const Parts& parts, const RankSetup& ranks, BuildMemory& memory) {
  const auto* const several = dynamic_cast<const AlternatingTask*>(task.get());
  check(several != nullptr || config.optimizers.empty(), ErrorKind::Usage, "optimizers",
        "this task has one optimizer; allowed with it: optimizer");
  std::vector<std::pair<std::string, ParameterSet>> divided{{"", *parameters}};
  if (several != nullptr) {
    detail::check_complete_states(*strategy);
    divided = detail::divided_parameters(*several, *parameters);
  }
  for (const auto& given : config.optimizers)
    check(std::any_of(divided.begin(), divided.end(), [&](const auto& own) { return own.first == given.first; }), ErrorKind::Usage,
          ("optimizers." + given.first).c_str(), "the task has no optimizer of this name; it has: ", join(several->optimizers()));
  for (const auto& [name, own] : divided) {
    OwnOptimizer one{.name = name, .strategy = strategy, .precision = precision, .optimizer = {}};
    if (!optimizers.empty()) {
      one.strategy = ranks.another(config.dist);
      one.precision = make_precision(precision_options(config), device);
    }
    make_optimizer(one, own, config, parts, memory);
    optimizers.push_back(std::move(one));
  }
  memory.report();
  if (!config.average.enabled) return;
  std::vector<std::string> names;
  for (const auto& one : optimizers) names.push_back(one.name);
  const auto averaged = detail::place_of_averaged(config.average.of, names);
  const auto& one = optimizers[averaged];
  const auto& updated = one.optimizer->parameters();
  const auto& in_model = one.strategy->shards_parameters() ? on_device(*one.strategy, updated) : divided[averaged].second;
  average = std::make_unique<WeightAverage>(updated, config.average, task->buffers(), in_model);
}

/// Makes the optimizer `out.name` for the parameters `all`, with the precision and the strategy of `out`.
void Run::make_optimizer(OwnOptimizer& out, const ParameterSet& all, const RunConfig& config, const Parts& parts, BuildMemory& memory) {
  const auto keep_fp32 = fp32_parameters(model, amp_modules(config.amp), task->norm_parameters(), all, *out.precision);
  auto trained = out.precision->prepare(all, keep_fp32).filter([](const Parameter& p) { return p.value.requires_grad(); });
  if (out.strategy->shards_parameters()) trained = gather_in_low_precision(config, trained, parts);
  memory.end();
  const auto updated = out.strategy->setup(trained);
  if (moves_in_units(config)) task->to(device.c10());  // moves the tensors that are not sharded
  out.precision->set_updated(updated);
  const auto own = std::find_if(config.optimizers.begin(), config.optimizers.end(), [&](const auto& o) { return o.first == out.name; });
  out.optimizer = own == config.optimizers.end() ? parts.optimizers.make(config.optimizer, "optimizer", updated, all)
                                                 : parts.optimizers.make(own->second, "optimizers." + out.name, updated, all);
  out.optimizer->set_limits(model.limits);
  if (out.strategy->shards())
    out.optimizer->set_norm_reduction([of = out.strategy.get()](at::Tensor& squares) { of->add_over_ranks(squares); });
  check(!out.strategy->shards() || out.optimizer->takes_slices(), ErrorKind::Usage, "trainer.strategy", "optimizer ", out.optimizer->name(),
        " needs complete parameters, and ", config.trainer.strategy,
        " gives each rank slices of them; allowed with it: ddp; hint: an optimizer "
        "of your own whose elements are updated independently declares takes_slices()");
}

void Run::make_schedule(const RunConfig& config, const Parts& parts) {
  ScheduleContext context;
  context.base_lr = optimizers.front().optimizer->lr();
  context.total_epochs = config.trainer.max_epochs;
  context.total_steps = config.trainer.max_steps;
  auto options = config.trainer;
  options.fast_dev_run = false;  // a trial run keeps the schedule of the full run
  const auto rounds = limited_rounds(options, train->rounds_per_epoch());
  const auto k = config.trainer.accumulate_grad_batches;
  const auto steps_per_epoch = rounds ? std::optional((*rounds + k - 1) / k) : std::nullopt;
  if (steps_per_epoch && config.trainer.max_epochs > 0) {  // whichever limit is reached first
    const auto by_epochs = *steps_per_epoch * config.trainer.max_epochs;
    context.total_steps = context.total_steps < 0 ? by_epochs : std::min(context.total_steps, by_epochs);
  }
  schedule = parts.schedules.make(config.lr_scheduler, "lr_scheduler", context);
  if (config.average.enabled && config.average.kind == "swa" && config.average.lr > 0) {
    const auto start = epochs_before_averages(config, *schedule, steps_per_epoch);
    const double unit = schedule->by_epoch() ? 1 : static_cast<double>(*steps_per_epoch);
    const auto averaged =
        std::find_if(optimizers.begin(), optimizers.end(), [&](const auto& one) { return one.name == config.average.of; });
    const double rate = averaged->optimizer->lr();  // at factor 1
    check(rate > 0, ErrorKind::Usage, "average.lr", "the optimizer's lr is 0, which no factor turns into ", config.average.lr,
          "; allowed with it: 0; hint: optimizer.lr");
    *schedule = schedule->then(std::round(start * unit), static_cast<double>(config.average.anneal_epochs) * unit, config.average.lr / rate,
                               config.average.anneal == "cosine");
  }
  if (strategy->ranks().is_main() && never_averages(config.average, config.trainer, context.total_steps))
    log_warning("average.kind=swa: the run ends before its first average: average.start=", config.average.start,
                ", average.every=", config.average.every, "; hint: smaller ones, or a longer run");
  const auto length = schedule->by_epoch() ? context.total_epochs : context.total_steps;
  if (strategy->ranks().is_main() && length > 0 && schedule->warmup() >= static_cast<double>(length))
    log_warning("lr_scheduler: the warm-up has ", schedule->warmup(), schedule->by_epoch() ? " epochs" : " steps", " and the run ", length,
                ": the learning rate never reaches optimizer.lr, ", context.base_lr, "; hint: a shorter warm-up, or a longer run");
  const bool by_milestones = config.lr_scheduler.name == "step" || config.lr_scheduler.name == "multistep";
  if (strategy->ranks().is_main() && by_milestones && length > 1 && static_cast<double>(length) > schedule->warmup() &&
      schedule->factor(schedule->warmup()) == schedule->factor(static_cast<double>(length - 1)))
    log_warning("lr_scheduler: ", config.lr_scheduler.name, " never changes the learning rate within the ", length,
                schedule->by_epoch() ? " epochs" : " steps", " of this run; hint: a shorter step_size or earlier milestones");
}

void Run::announce_groups() const {
  for (const auto& one : optimizers) announce_groups_of(one.name.empty() ? "optimizer" : "optimizer " + one.name, *one.optimizer);
}

}  // namespace npu_train
