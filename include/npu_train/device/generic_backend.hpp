/// A base class for backends: everything that libtorch offers for a device without the device's own API. Your own backend adds name,
/// why_not and capabilities, and activate() if a library must be loaded.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <string>

#include "npu_train/device/backend.hpp"

namespace npu_train {

/// Uses the device guard, the DeviceAllocator and the default generator that are registered with libtorch for the device type.
class GenericBackend : public DeviceBackend {
 public:
  GenericBackend(std::string name, c10::DeviceType type) : name_(std::move(name)), type_(type) {}

  std::string name() const override { return name_; }
  bool is_available() const override { return count() > 0; }
  int count() const override;  ///< 0 until libtorch has a device guard for the type
  void synchronize(const Device& device) const override;
  MemoryStats memory(const Device& device) const override;
  void reset_peak(const Device& device) const override;
  void empty_cache(const Device& device) const override;
  at::Generator generator(const Device& device) const override;

 protected:
  /// Returns libtorch's device; Error(Device) if it does not exist.
  c10::Device checked(const Device& device) const;
  c10::DeviceType type() const { return type_; }

 private:
  void require() const;

  std::string name_;
  c10::DeviceType type_;
};

}  // namespace npu_train
