// A kind of device that this build does not drive: an object all the same, which says so.
#pragma once

#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train::detail {

class UnavailableBackend final : public DeviceBackend {
 public:
  UnavailableBackend(std::string name, std::string why_not) : name_(std::move(name)), why_not_(std::move(why_not)) {}

  std::string name() const override { return name_; }
  bool is_available() const override { return false; }
  std::string why_not() const override { return why_not_; }
  int count() const override { return 0; }
  void synchronize(const Device&) const override { refuse(); }
  MemoryStats memory(const Device&) const override { refuse(); }
  void reset_peak(const Device&) const override { refuse(); }
  Capabilities capabilities(const Device&) const override { refuse(); }
  void seed(uint64_t) const override { refuse(); }
  State rng_state() const override { refuse(); }
  void set_rng_state(const State&) const override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw Error(ErrorKind::Device, "device " + name_, why_not_); }

  std::string name_;
  std::string why_not_;
};

}  // namespace npu_train::detail
