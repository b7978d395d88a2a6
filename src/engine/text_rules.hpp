// Rules for runs on text: the window of data.batch_tokens, the lengths of data.context_warmup, and the limits of models on texts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train::detail {

/// Returns the number of micro-batches per step and rank: trainer.accumulate_grad_batches or, with data.batch_tokens, the smallest number
/// whose full-length samples have at least batch_tokens tokens over all ranks. Error(Usage) if both are set, and for data without tokens.
int64_t accumulated_batches(const DatasetPair& data, const TrainerOptions& options, int64_t ranks);

/// Error(Usage) if data.context exceeds the model's context. Applies only if data and model are the library's own, because others may use
/// the key differently.
void check_context(const RunConfig& config, const Parts& parts);

/// Error(Usage) if the texts of images use another image token than the model.
void check_image_tokens(const DatasetPair& data, const Model& model);

/// Error(Usage) if samples consist of several documents, and the model does not keep them apart.
void check_packing(const DatasetPair& data, const Model& model);

/// Truncates the training batches of a run as data.context_warmup specifies. The length depends only on a batch's position in the run, so
/// that ranks and resumed runs use the same lengths as one uninterrupted process.
class ContextWarmupHook {
 public:
  /// Error(Usage) for data without complete token sequences, for data with labels, and for options that require equal shapes.
  ContextWarmupHook(const DatasetPair& data, const TrainerOptions& options, int64_t ranks);

  /// Returns the loader's hook; empty if inactive.
  BatchHook hook() const;
  /// Sets the rounds per epoch of the loader that uses the hook; call it before the first epoch.
  void set_rounds_per_epoch(std::optional<int64_t> rounds, const TrainerOptions& options);

 private:
  ContextWarmup warmup_;
  int64_t context_ = 0, micro_batches_ = 1;  // per window, over all ranks
  std::shared_ptr<std::atomic<int64_t>> windows_per_epoch_ = std::make_shared<std::atomic<int64_t>>(1);
};

}  // namespace npu_train::detail
