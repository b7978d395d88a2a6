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

/// Seeds libtorch's default generators of the CPU and of every available device. Addresses each device explicitly, because at::manual_seed
/// omits CUDA if a PrivateUse1 backend is loaded, and omits torch_npu before 2.13 in any case.
void seed_everything(uint64_t seed);

/// Returns the state of all these generators, keyed by device ("cpu", "cuda:0"), and of the thread's PortableRandom.
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
