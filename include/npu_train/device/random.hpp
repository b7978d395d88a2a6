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

/// Sets what `state` holds for devices that are here; entries of other devices are passed over, so that a checkpoint from a GPU can go on
/// on a CPU. Error(Checkpoint) without an entry for the CPU or for a damaged one; nothing is changed then.
void set_rng_state(const State& state);

/// Where the generators of the CPU and of `devices` stand, to draw the same numbers once more.
class RandomState {
 public:
  RandomState() = default;
  explicit RandomState(const std::vector<c10::Device>& devices);

  /// The generators back at this state, for good. A device that refuses is told in the log.
  void restore() const;

  /// The generators back at `state`; at its end they go on from where they were before.
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
