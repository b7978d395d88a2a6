// Makes averages between the steps of a loop: measures the running statistics of averaged weights, and takes the mean of the last
// checkpoints.
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "train/loop_jobs.hpp"
#include "train/training_state.hpp"

namespace npu_train {
namespace {

// Returns the weights of a checkpoint; nullopt, with a warning, if a rank cannot read them. Every rank makes the call.
std::optional<ParameterSet> readable_weights(const std::string& path, const LoopParts& parts) {
  std::optional<ParameterSet> out;
  try {
    out = detail::weights_in(path, parts);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Checkpoint) throw;
    log_warning("average.kind=checkpoints: passing over a checkpoint: ", e.what());
  }
  if (parts.strategy->ranks().any(!out)) out.reset();
  return out;
}

}  // namespace

/// Measures the running statistics of averages that have changed, with the training data of this epoch. Returns false if a stop was
/// requested before the end.
bool TrainLoop::take_statistics(bool stoppable) {
  if (!jobs_->averaging.needs_statistics() || parts_.train_loader == nullptr) return true;
  const detail::Evaluation::Options options{.limit = limited_rounds(options_, std::nullopt).value_or(-1),
                                            .pass = Pass::Training,
                                            .epoch = at_.epoch,
                                            .attempt = step_->attempts(),
                                            .stoppable = stoppable,
                                            .overfit = jobs_->windows.overfit(),
                                            .train_loader = parts_.train_loader};
  return observers_.run(Phase::Validation, step_->attempts(), 0, [&] {
    return translated("Trainer::fit", [&] { return jobs_->evaluation.take_statistics(*parts_.train_loader, options); });
  });
}

/// Takes the mean of the last checkpoints at the end of a run, validates it, and saves it in the last checkpoint.
void TrainLoop::average_checkpoints() {
  const auto wanted = jobs_->averaging.wanted_checkpoints(at_.global_step);
  if (wanted == 0) return;
  auto& ranks = parts_.strategy->ranks();
  const auto newest = parts_.store != nullptr && ranks.is_main() ? parts_.store->newest(wanted) : std::vector<std::string>();
  std::istringstream paths(ranks.from_main(join(newest, "\n")));
  jobs_->averaging.begin();
  int64_t averaged = 0;
  for (std::string path; std::getline(paths, path);) {
    const auto weights = readable_weights(path, parts_);
    if (!weights) continue;
    jobs_->averaging.add(*weights, at_.global_step);
    ++averaged;
  }
  if (averaged == 0) {
    if (ranks.is_main() && !options_.fast_dev_run)
      log_warning("average.kind=checkpoints: there is no checkpoint to average; hint: checkpoint.enabled=true, and an output.dir");
    return;
  }
  if (ranks.is_main()) log_info("average.kind=checkpoints: the mean of ", averaged, " checkpoints, at step ", at_.global_step);
  if (ranks.is_main() && averaged < wanted)
    log_warning("average.kind=checkpoints: fewer than average.last, ", wanted, ": the folder of this run has no more");
  take_statistics(/*stoppable=*/false);
  jobs_->averaging.statistics_taken();
  if (validates()) validate_at_stop(/*stoppable=*/false);
  save_checkpoint();
}

}  // namespace npu_train
