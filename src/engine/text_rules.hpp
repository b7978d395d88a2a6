// What a run of texts derives from its data and its model: the window of data.batch_tokens, the lengths of data.context_warmup, and that
// the texts fit the model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train::detail {

/// trainer.accumulate_grad_batches: the given number, or with data.batch_tokens as many micro-batches as have that many tokens, over all
/// ranks, if their samples are complete. Error(Usage) if both are set, and for data without tokens.
int64_t accumulated_batches(const DatasetPair& data, const TrainerOptions& options, int64_t ranks);

/// Error(Usage) if data.context exceeds the model's context. Both parts must be the library's own: in others the key may mean something
/// else.
void check_context(const RunConfig& config, const Parts& parts);

/// Error(Usage) if the texts of images have other image tokens than the model.
void check_image_tokens(const DatasetPair& data, const Model& model);

/// Cuts the training batches of a run; inactive without data.context_warmup. The length depends only on the position of a batch in the run,
/// so that ranks and resumed runs have those of one uninterrupted process.
class ContextWarmupHook {
 public:
  /// Error(Usage) for data without complete sequences of tokens, for those with labels, and with options that need equal shapes.
  ContextWarmupHook(const DatasetPair& data, const TrainerOptions& options, int64_t ranks, int64_t accumulate);

  /// A hook of the loader; empty if inactive.
  BatchHook hook() const;
  /// Of the loader with the hook, before its first epoch.
  void set_rounds_per_epoch(std::optional<int64_t> rounds, const TrainerOptions& options);

 private:
  ContextWarmup warmup_;
  int64_t context_ = 0, micro_batches_ = 1;  // of a window, over all ranks
  int64_t accumulate_ = 1;
  std::shared_ptr<std::atomic<int64_t>> windows_per_epoch_ = std::make_shared<std::atomic<int64_t>>(1);
};

}  // namespace npu_train::detail
