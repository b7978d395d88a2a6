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
  void empty_cache(const Device& device) const override;
  at::Generator generator(const Device& device) const override;

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

}  // namespace npu_train::detail
