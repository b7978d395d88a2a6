/// Random numbers that do not depend on the device: drawn on the host from a counter, then copied. With them dropout masks are equal on a
/// CPU, a GPU and an NPU, whose own generators have nothing in common.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace npu_train {

/// While one lives, this thread's dropout (npu_train::dropout and what the built-in networks drop) draws from Philox4x32-10 on the host.
/// Each tensor takes the next number of a count for its key, so the values depend on the seed and the order of draws alone: not on the
/// device, nor on the number of threads.
class PortableRandom {
 public:
  /// The position of this thread in its random numbers, like the state of a generator.
  struct Position {
    bool on = false;
    uint64_t seed = 0;
    uint64_t next = 0;  ///< tensors drawn so far
    friend bool operator==(const Position&, const Position&) = default;
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
