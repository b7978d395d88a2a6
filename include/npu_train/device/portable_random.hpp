/// Random numbers that do not depend on the device: drawn on the host from a counter, then copied. With them dropout masks are equal on a
/// CPU, a GPU and an NPU, whose own generators have nothing in common.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string_view>

namespace npu_train {

/// While one lives, this thread's dropout (npu_train::dropout and what the built-in networks drop) draws from Philox4x32-10 on the host.
/// The key of a tensor is derived from the seed and from the position of the draw, so the values depend neither on the device nor on the
/// number of threads.
///
/// Inside a MicroBatch the position is (pass, attempt, number of the micro-batch, draw within it): TrainStep makes one for each micro-batch
/// and validations make one for each batch, numbered over all ranks. So N ranks draw the numbers of one process that runs the
/// micro-batches of all. Elsewhere (a loop of your own, predictions) the position is the count of draws since the start.
class PortableRandom {
 public:
  /// The position of this thread in its random numbers, like the state of a generator.
  struct Position {
    bool on = false;
    uint64_t seed = 0;  ///< inside a MicroBatch: the seed of that micro-batch
    uint64_t next = 0;  ///< tensors drawn so far with this seed
    friend bool operator==(const Position&, const Position&) = default;
  };

  /// While one lives, draws of this thread are those of one micro-batch, counted from 0; then the earlier count continues. No effect where
  /// no PortableRandom lives.
  class MicroBatch {
   public:
    /// `pass`: "training" or "validation". `attempt`: windows attempted before. `number`: of the micro-batch among those of all ranks.
    MicroBatch(std::string_view pass, int64_t attempt, int64_t number);
    ~MicroBatch();
    MicroBatch(const MicroBatch&) = delete;
    MicroBatch& operator=(const MicroBatch&) = delete;

   private:
    Position before_;
  };

  explicit PortableRandom(uint64_t seed);
  ~PortableRandom();
  PortableRandom(const PortableRandom&) = delete;
  PortableRandom& operator=(const PortableRandom&) = delete;

  static Position position();
  static void set_position(const Position& position);
  static bool is_on() { return position().on; }

  /// fp32 in [0, 1) on `device`. Error(Usage) where it is not on.
  static at::Tensor uniform(at::IntArrayRef sizes, const c10::Device& device);

 private:
  Position before_;
};

}  // namespace npu_train
