/// How much memory training will take at a batch that was never run: one step each of two small batches is recorded
/// (memory_trace.hpp). Both take and give back the same blocks in the same order, and the size of each block is a straight line over the
/// batch; so the row of blocks of any batch is known, and is played through the device's allocator.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/memory/memory_trace.hpp"

namespace npu_train {

/// What a step takes at most.
struct MemoryPeak {
  int64_t allocated = 0;  ///< bytes of tensors, everything that lives between steps included
  int64_t reserved = 0;   ///< what a caching allocator takes from the device for them
  std::string phase, layer;
  MemoryByUse uses{};                                        ///< of `allocated`
  std::vector<std::pair<std::string, int64_t>> activations;  ///< kept by the forward, by layer, in its order
  std::vector<std::pair<std::string, int64_t>> phases;       ///< the most in each phase
  std::vector<std::pair<std::string, int64_t>> timeline;     ///< phase and bytes, block by block
};

/// What a caching allocator holds beyond tensors.
struct AllocatorGaps {
  int64_t reserved = 0;  ///< bytes that it has taken from the device
  int64_t gaps = 0;      ///< of them without a tensor
  int64_t largest = 0;   ///< the largest gap
};

/// Of libtorch's caching allocator, on a device without a limit, after the first `events` events of a step: a plan, not a measurement.
AllocatorGaps planned_gaps(const ResidentMemory& resident, const MemoryTrace& trace, size_t events);

/// The memory of a step as a function of its batch.
class MemoryModel {
 public:
  MemoryModel() = default;
  /// Of two steps. Error(Usage) unless small_batch < large_batch.
  MemoryModel(ResidentMemory resident, MemoryTrace small, int64_t small_batch, MemoryTrace large, int64_t large_batch);

  /// Both steps took the same blocks in the same order. Where they did not, the peak of each phase is a straight line, and that is all
  /// that is known.
  bool matched() const { return matched_; }
  /// Each window has so many more batches lying on the device than the recorded ones.
  void add_waiting_batches(int64_t batches) { waiting_ = batches; }
  /// Bytes more that live between steps, whatever the batch is.
  void add_resident(MemoryUse use, int64_t bytes) { resident_.tensors.emplace_back(use, bytes); }

  MemoryPeak peak(int64_t batch) const;
  /// Whether a device with `bytes` can do it: by blocks of a caching allocator that gives back what it can before it fails, or with `exact`
  /// by the bytes of tensors alone.
  bool fits(int64_t batch, int64_t bytes, bool exact = false) const;
  /// The largest batch that fits; 0: not even one sample.
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

/// The answer of npu_tool memory.
struct MemoryPrediction {
  /// The same run in another precision or with other checkpointing.
  struct Variant {
    std::string precision{}, checkpointing{};
    int64_t allocated = 0, reserved = 0;
    int64_t largest = 0;    ///< 0 without a limit
    std::string problem{};  ///< why it cannot be; "" where it can
    bool chosen = false;    ///< it is the configuration's
  };
  std::string model{}, device{}, precision{}, checkpointing{}, optimizer{};
  int64_t batch = 0, accumulate = 1;
  int64_t small_batch = 0, large_batch = 0;  ///< that were run
  bool matched = true;
  MemoryPeak peak{};
  int64_t hbm = 0;      ///< bytes of the card; 0: not judged
  int64_t largest = 0;  ///< batch that fits into hbm
  std::vector<Variant> variants{};
  std::vector<std::string> notes{};

  /// Of `hbm`; true without one.
  bool fits() const { return hbm == 0 || largest >= batch; }
};

/// The largest multiple of `step` up to `batch`; 0 where there is none.
inline int64_t multiple_below(int64_t batch, int64_t step) { return batch / step * step; }
/// The largest power of two up to `batch`; 0 for 0.
int64_t power_below(int64_t batch);

std::string to_text(const MemoryPrediction& prediction, size_t width = 0);
Json to_json(const MemoryPrediction& prediction);
/// A page that needs nothing else.
std::string to_html(const MemoryPrediction& prediction);

}  // namespace npu_train
