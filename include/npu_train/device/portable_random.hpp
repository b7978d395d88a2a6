/// Device-independent random numbers: drawn on the host from a counter, then copied. They make dropout masks equal on a CPU, a GPU and an
/// NPU, whose own generators are unrelated.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string_view>

namespace npu_train {

/// In its scope, this thread's dropout (npu_train::dropout and the built-in networks) draws from Philox4x32-10 on the host. The key of a
/// tensor is derived from the seed and the position of the draw, so the values depend neither on the device nor on the number of threads.
///
/// Inside a MicroBatch the position is (pass, attempt, number of the micro-batch, draw within it). TrainStep opens one for each micro-batch
/// and validation one for each batch, numbered over all ranks; therefore N ranks draw the same numbers as one process that runs all
/// micro-batches. Outside of a MicroBatch (in your own loop, in predictions) the position is the number of draws since the start.
class PortableRandom {
 public:
  /// This thread's position in its random numbers, like a generator state.
  struct Position {
    bool on = false;
    uint64_t seed = 0;  ///< inside a MicroBatch: the seed of the micro-batch
    uint64_t next = 0;  ///< number of tensors drawn with this seed
    friend bool operator==(const Position&, const Position&) = default;
  };

  /// In its scope, this thread's draws belong to one micro-batch and are counted from 0; afterwards the previous count continues. No effect
  /// without a PortableRandom.
  class MicroBatch {
   public:
    /// `pass`: "training" or "validation". `attempt`: number of windows attempted before. `number`: index of the micro-batch over all
    /// ranks.
    MicroBatch(std::string_view pass, int64_t attempt, int64_t number);
    ~MicroBatch();
    MicroBatch(const MicroBatch&) = delete;
    MicroBatch& operator=(const MicroBatch&) = delete;
    /// Seed of the draws, derived from the arguments and the outer seed; also set without a PortableRandom.
    uint64_t key() const { return key_; }

   private:
    uint64_t key_;
    Position before_;
  };

  explicit PortableRandom(uint64_t seed);
  ~PortableRandom();
  PortableRandom(const PortableRandom&) = delete;
  PortableRandom& operator=(const PortableRandom&) = delete;

  static Position position();
  static void set_position(const Position& position);
  static bool is_on() { return position().on; }

  /// Draws fp32 numbers in [0, 1) and copies them to `device`. Error(Usage) without a PortableRandom.
  static at::Tensor uniform(at::IntArrayRef sizes, const c10::Device& device);

 private:
  Position before_;
};

}  // namespace npu_train
