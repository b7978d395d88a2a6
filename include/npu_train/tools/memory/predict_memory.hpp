/// Predicts the memory of a configured run: see tools/memory/memory_prediction.hpp.
#pragma once

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"

namespace npu_train {

struct MemoryPredictionOptions {
  int64_t hbm = 0;       ///< bytes of the card; 0: the largest batch is not computed
  bool variants = true;  ///< also predict other precisions (with several ranks: other strategies), with and without checkpointing
  int ranks = 1;         ///< world size, with one device per rank; the prediction is for one of them
};

/// Predicts the memory of a run. Runs three steps with 2 or 3 samples on the configuration's device (`auto`: an accelerator if available,
/// otherwise the simulated NPU) and writes no file. A step with 1 sample would not be typical: sums over the batch and BatchNorm are
/// special cases. If the simulated NPU is not loaded yet, call this before the first backward pass of the process, at which autograd counts
/// the devices. Errors of the configuration, the data and the model are rethrown; those of a variant are reported in its row.
MemoryPrediction predict_memory(const RunConfig& config, const MemoryPredictionOptions& options = {}, const Parts& parts = builtin_parts());

/// Returns the memory of one configuration's step as a function of its batch.
MemoryModel measure_memory(const RunConfig& config, const Parts& parts = builtin_parts());

/// Returns the cheapest overrides with which the training fits into `hbm` bytes with the same update: smaller micro-batches, checkpointing,
/// or both; "" if none of them is sufficient.
std::string fitting_overrides(const RunConfig& config, int64_t hbm, const Parts& parts = builtin_parts());

/// Returns the first of zero1, zero2 and zero3 with which `ranks` devices of `hbm` bytes can train the configuration, as
/// "trainer.strategy=zero2 on 8 ranks"; "" if none suffices. `overrides`: in that case, also tries each of them with the overrides of
/// fitting_overrides().
std::string fitting_strategy(const RunConfig& config, int64_t hbm, int ranks, bool overrides, const Parts& parts = builtin_parts());

/// The predicted and the measured memory of a run.
struct MemoryCheck {
  int64_t batch = 0, predicted = 0, measured = 0;  ///< peak bytes of tensors on the device

  /// Error relative to the measured memory: 0.05 is 5 % too much.
  double error() const { return static_cast<double>(predicted) / static_cast<double>(measured) - 1; }
};

/// Trains two steps with `batch` on the configuration's device. Returns the peak bytes of tensors. Error(Usage) on a CPU, whose allocator
/// records no peak.
int64_t measured_peak(const RunConfig& config, int64_t batch, const Parts& parts = builtin_parts());

/// Compares the measured_peak() of each of `batches` with the prediction.
std::vector<MemoryCheck> check_memory(const RunConfig& config, const std::vector<int64_t>& batches, const Parts& parts = builtin_parts());

}  // namespace npu_train
