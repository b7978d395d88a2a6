/// The random number generators of the process, all at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/portable_random.hpp"

namespace npu_train {

/// Seeds libtorch's default generators: the CPU's and those of every available device, each explicitly. (at::manual_seed leaves out CUDA
/// when a PrivateUse1 backend is loaded, and torch_npu before 2.13 altogether.)
void seed_everything(uint64_t seed);

/// State of all these generators, keyed by device ("cpu", "cuda:0"), and of the thread's PortableRandom.
State rng_state();

/// Sets the generators of the available devices from `state`; entries of other devices are ignored, so that a checkpoint from a GPU can be
/// resumed on a CPU. Error(Checkpoint) if the entry for the CPU is missing or damaged; nothing is changed then.
void set_rng_state(const State& state);

/// The states of the generators of the CPU and of `devices`, to draw the same numbers once more.
class RandomState {
 public:
  RandomState() = default;
  explicit RandomState(const std::vector<c10::Device>& devices);

  /// Returns the generators to this state permanently. A device that fails is reported in the log.
  void restore() const;

  /// Sets the generators to `state`; at its end they continue from their previous states.
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
