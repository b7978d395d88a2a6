/// Random numbers: functions for all generators of the process at once, and numbers that are equal on every device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/device/device.hpp"

namespace npu_train {

// Device-independent random numbers: drawn on the host from a counter, then copied. They make dropout masks equal on a CPU, a GPU and an
// NPU, whose own generators are unrelated.

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

/// Seeds libtorch's default generators of the CPU and of every available device. Addresses each device explicitly, because at::manual_seed
/// omits CUDA if a PrivateUse1 backend is loaded, and omits torch_npu before 2.13 in any case.
void seed_everything(uint64_t seed);

/// Returns the states of the generators that seed_everything() seeds, by device ("cpu", "cuda:0"), and the state of the thread's
/// PortableRandom, if there is one.
State rng_state();

/// Restores the generators of the available devices. Entries for other devices are ignored, so that a checkpoint from a GPU can be resumed
/// on a CPU. Error(Checkpoint) if the entry of the CPU is missing or damaged; no generator is changed then.
void set_rng_state(const State& state);

/// States of the generators of the CPU and of `devices`, for drawing the same numbers again.
class RandomState {
 public:
  RandomState() = default;
  explicit RandomState(const std::vector<c10::Device>& devices);

  /// Sets the generators to this state, permanently. Failures of a device are logged.
  void restore() const;

  /// Sets the generators to `state`; the destructor restores their previous states.
  class Scope {
   public:
    explicit Scope(const RandomState& state);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::vector<std::pair<Device, at::Tensor>> before_;
    PortableRandom::Position portable_before_;
  };

 private:
  std::vector<std::pair<Device, at::Tensor>> states_;
  PortableRandom::Position portable_;
};

}  // namespace npu_train
