// What the accelerators share: everything that libtorch offers without naming the device's own API.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <string>

#include "npu_train/device/backend.hpp"

namespace npu_train::detail {

class GenericBackend : public DeviceBackend {
 public:
  GenericBackend(std::string name, c10::DeviceType type) : name_(std::move(name)), type_(type) {}

  std::string name() const override { return name_; }
  bool is_available() const override { return count() > 0; }
  int count() const override;  // devices whose libtorch part is loaded
  void synchronize(const Device& device) const override;
  MemoryStats memory(const Device& device) const override;
  void reset_peak(const Device& device) const override;
  void seed(uint64_t seed) const override;
  State rng_state() const override;
  void set_rng_state(const State& state) const override;

 protected:
  c10::Device checked(const Device& device) const;
  c10::DeviceType type() const { return type_; }

 private:
  void require() const;

  std::string name_;
  c10::DeviceType type_;
};

// The kinds, one object each.
const DeviceBackend& cpu_backend();
const DeviceBackend& cuda_backend();
const DeviceBackend& npu_backend();
const DeviceBackend& sim_npu_backend();

// Sets `tensor` as the state of the default generator of `device`. Error(Checkpoint) when it is none.
void check_generator_state(const c10::Device& device, const at::Tensor& state);
void set_generator_state(const c10::Device& device, const at::Tensor& state);
at::Tensor generator_state(const c10::Device& device);
void seed_generator(const c10::Device& device, uint64_t seed);

}  // namespace npu_train::detail
