/// Predicts the memory of a training for a batch that was never run. One step is recorded with each of two small batches
/// (memory_trace.hpp). Both steps allocate and free the same blocks in the same order, and the size of each block is a linear function of
/// the batch. The sequence of blocks is therefore known for any batch, and is replayed through a model of the device's allocator.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/memory/memory_trace.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// The peak memory of a step.
struct MemoryPeak {
  int64_t allocated = 0;  ///< bytes of tensors, including those that persist between steps
  int64_t reserved = 0;   ///< device bytes that a caching allocator reserves for the tensors
  std::string phase, layer;
  MemoryByUse uses{};                                        ///< parts of `allocated`
  std::vector<std::pair<std::string, int64_t>> activations;  ///< bytes that the forward pass keeps, by layer in forward order
  std::vector<std::pair<std::string, int64_t>> phases;       ///< peak in each phase
  std::vector<std::pair<std::string, int64_t>> timeline;     ///< phase and allocated bytes after each event
};

/// The reserved memory of a caching allocator.
struct AllocatorGaps {
  int64_t reserved = 0;  ///< bytes that the allocator has reserved on the device
  int64_t gaps = 0;      ///< reserved bytes without a tensor
  int64_t largest = 0;   ///< the largest gap
};

/// Replays the first `events` events of a step in a simulation of libtorch's caching allocator, on a device without a limit.
AllocatorGaps planned_gaps(const ResidentMemory& resident, const MemoryTrace& trace, size_t events);

/// The memory of a step as a function of its batch.
class MemoryModel {
 public:
  MemoryModel() = default;
  /// Builds the model from two recorded steps. Error(Usage) unless small_batch < large_batch.
  MemoryModel(ResidentMemory resident, MemoryTrace small, int64_t small_batch, MemoryTrace large, int64_t large_batch);

  /// Returns whether both steps allocated the same blocks in the same order. If not, only the peak of each phase is extrapolated linearly.
  bool matched() const { return matched_; }
  /// Sets the number of batches that a window keeps on the device in addition to the recorded ones.
  void add_waiting_batches(int64_t batches) { waiting_ = batches; }
  /// Adds bytes that persist between steps, independent of the batch.
  void add_resident(MemoryUse use, int64_t bytes) { resident_.tensors.emplace_back(use, bytes); }

  MemoryPeak peak(int64_t batch) const;
  /// Returns whether the step fits on a device with `bytes` of memory. Counts the memory that a caching allocator reserves, which frees its
  /// unused blocks before a request fails. With `exact`, counts only the bytes of tensors.
  bool fits(int64_t batch, int64_t bytes, bool exact = false) const;
  /// Returns the largest batch that fits; 0 if not even one sample does.
  int64_t largest_batch(int64_t bytes, bool exact = false) const;

 private:
  int64_t bytes_of(size_t block, int64_t batch) const;
  int64_t waiting_bytes(int64_t batch) const;
  int64_t allocated_peak(int64_t batch) const;
  int64_t reserved_peak(int64_t batch, int64_t capacity) const;  // -1: does not fit
  MemoryPeak straight_lines(int64_t batch) const;

  ResidentMemory resident_;
  MemoryTrace small_, large_;
  int64_t small_batch_ = 1, large_batch_ = 2;
  bool matched_ = false;
  int64_t waiting_ = 0;
};

/// The result of npu_tool memory.
struct MemoryPrediction {
  /// The predicted run in another precision, with another strategy for several ranks, or with other checkpointing.
  struct Variant {
    std::string precision{}, strategy{}, checkpointing{};
    int64_t allocated = 0, reserved = 0;
    int64_t largest = 0;    ///< largest batch that fits; 0: no limit
    std::string problem{};  ///< the reason why the variant is impossible; "" if it is possible
    bool chosen = false;    ///< the variant of the configuration
  };
  std::string model{}, device{}, precision{}, checkpointing{}, optimizer{};
  int64_t batch = 0, accumulate = 1;
  int ranks = 1;
  std::string strategy{};                    ///< strategy of several ranks; "" for one
  int64_t small_batch = 0, large_batch = 0;  ///< samples of the recorded steps
  bool matched = true;
  MemoryPeak peak{};
  int64_t hbm = 0;      ///< bytes of the card; 0: no verdict
  int64_t largest = 0;  ///< largest batch that fits into `hbm`
  std::vector<Variant> variants{};
  std::vector<std::string> notes{};

  /// Whether the configured batch fits into `hbm`; true if there is no limit.
  bool fits() const { return hbm == 0 || largest >= batch; }
};

/// Returns the largest multiple of `step` up to `batch`; 0 if there is none.
inline int64_t multiple_below(int64_t batch, int64_t step) { return batch / step * step; }
/// Returns the largest power of two up to `batch`; 0 for 0.
int64_t power_below(int64_t batch);

Report report_of(const MemoryPrediction& prediction);

struct MemoryPredictionOptions {
  int64_t hbm = 0;       ///< bytes of the card; 0: the largest batch is not computed
  bool variants = true;  ///< also predict other precisions (with several ranks: other strategies), with and without checkpointing
  int ranks = 1;         ///< world size, with one device per rank; the prediction is for one of them
};

/// Predicts the memory of a run. Runs three steps with 2 or 3 samples on the configuration's device (`auto`: an accelerator if available,
/// otherwise the simulated NPU) and writes no file. A step with 1 sample would not be typical, since sums over the batch and BatchNorm are
/// special cases then. If the simulated NPU is not loaded yet, call this before the first backward pass of the process, at which autograd
/// counts the devices. Errors of the configuration, the data and the model are rethrown; those of a variant are reported in its row.
MemoryPrediction predict_memory(const RunConfig& config, const MemoryPredictionOptions& options = {}, const Parts& parts = builtin_parts());

/// Returns the memory of one configuration's step as a function of its batch.
MemoryModel measure_memory(const RunConfig& config, const Parts& parts = builtin_parts());

/// Returns the cheapest overrides with which the training fits into `hbm` bytes with the same update: smaller micro-batches, checkpointing,
/// or both; "" if none of them is sufficient.
std::string fitting_overrides(const RunConfig& config, int64_t hbm, const Parts& parts = builtin_parts());

/// Returns the first of zero1, zero2 and zero3 with which `ranks` devices of `hbm` bytes can train the configuration, as
/// "trainer.strategy=zero2 on 8 ranks"; "" if none suffices. `overrides`: if none suffices alone, also tries each one with the overrides of
/// fitting_overrides().
std::string fitting_strategy(const RunConfig& config, int64_t hbm, int ranks, bool overrides, const Parts& parts = builtin_parts());

/// The predicted and the measured memory of a run.
struct MemoryCheck {
  int64_t batch = 0, predicted = 0, measured = 0;  ///< peak bytes of tensors on the device

  /// Error relative to the measured memory: 0.05 means that the prediction is 5 % too high.
  double error() const { return static_cast<double>(predicted) / static_cast<double>(measured) - 1; }
};

/// Trains two steps with `batch` on the configuration's device. Returns the peak bytes of tensors. Error(Usage) on a CPU, whose allocator
/// records no peak.
int64_t measured_peak(const RunConfig& config, int64_t batch, const Parts& parts = builtin_parts());

/// Compares the measured_peak() of each of `batches` with the prediction.
std::vector<MemoryCheck> check_memory(const RunConfig& config, const std::vector<int64_t>& batches, const Parts& parts = builtin_parts());

}  // namespace npu_train
