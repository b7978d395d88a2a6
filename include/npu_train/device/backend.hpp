/// The interface to a kind of device, with one object per kind. Kinds that are not available have an object, too, which reports what is
/// missing.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/device/device.hpp"

namespace at {
struct Generator;
class Tensor;
}  // namespace at

namespace npu_train {

/// Memory of a device in bytes. On a CPU, `allocated` and `reserved` are the resident set of the process, `peak` is its maximum, and
/// `total` is the memory of the machine or of the control group, whichever is smaller. On other devices, the values are those of
/// libtorch's caching allocator; -1 if the device's allocator does not report them.
struct MemoryStats {
  int64_t allocated = -1;
  int64_t peak = -1;
  int64_t reserved = -1;
  int64_t total = -1;
};

/// The capabilities of a device.
struct Capabilities {
  bool native_bf16 = false;            ///< has units for bf16, and libtorch fast kernels for them
  bool native_fp16 = false;            ///< has units for fp16, and libtorch fast kernels for them
  bool pinned_memory = false;          ///< copies from page-locked host memory overlap with computation
  bool streams = false;                ///< work is queued asynchronously: calls return before it is done
  bool channels_last = true;           ///< has kernels for this memory format
  bool saturating_overflow = false;    ///< an overflow gives the largest finite number, not inf, so finite checks miss it
  bool computes_without_units = true;  ///< false: cannot compute in bf16 or fp16 without hardware units; true: can, but slowly
  bool skips_on_device = true;  ///< its optimizer kernels accept `found_inf`; false: the host reads it and decides whether to skip the step
  bool all_fused_optimizers = false;    ///< has all of libtorch's fused Adam and SGD; false: _fused_adamw_ and, if `fused_sgd`, _fused_sgd_
  bool fused_sgd = true;                ///< has _fused_sgd_ with momentum
  bool fp64 = false;                    ///< has fp64 operators
  bool bf16_collectives = true;         ///< collectives support bf16
  bool ranks_by_powers_of_two = false;  ///< the number of processes per machine must be 1, 2, 4 or 8
  bool graphs = true;                   ///< false: the chip cannot capture a graph, though its libraries have graphs
};

/// The interface to one kind of device. Methods take a device because a kind may have several. All methods declared after count() throw
/// Error(Device) with the text of why_not() if the kind is not available.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual std::string name() const = 0;
  /// Loads the libraries of this kind; called when a configuration or program names one of its devices. Error(Device) if something is
  /// missing.
  virtual void activate() const {}
  /// Returns whether such a device may be present, without loading a library. If true, "auto" tries activate().
  virtual bool may_be_there() const { return is_available(); }
  /// Returns whether this process can use at least one device of this kind.
  virtual bool is_available() const = 0;
  /// Returns a sentence about what is missing and what to do; "" if available.
  virtual std::string why_not() const = 0;
  /// Number of devices of this kind; 0 if not available.
  virtual int count() const = 0;
  /// Returns the number of devices of this kind that the processes on this machine may use; 0 if unknown. Initialises none of them.
  /// train_app starts one process per device.
  virtual int visible_count() const { return 0; }

  /// Waits until all work queued on `device` is done. No effect on a CPU.
  virtual void synchronize(const Device& device) const = 0;
  virtual MemoryStats memory(const Device& device) const = 0;
  /// Restarts the peak from the current allocation. If the system does not support this (no /proc/self/clear_refs), the old peak remains.
  virtual void reset_peak(const Device& device) const = 0;
  /// Returns cached memory of the allocator to the device. No effect without such a cache or a way to release it.
  virtual void empty_cache(const Device& /*device*/) const {}
  virtual Capabilities capabilities(const Device& device) const = 0;

  /// Returns whether an overflow has happened since the flag was cleared. Only for a device with Capabilities::saturating_overflow. Waits
  /// for the device.
  virtual bool overflow_flag(const Device& /*device*/) const { return false; }
  virtual void clear_overflow_flag(const Device& /*device*/) const {}

  /// Calls loss.backward() in the way that suits the device's use of threads.
  virtual void backward(const at::Tensor& loss) const;

  /// Returns the generator that operators on `device` draw from. Hold its mutex while using it.
  virtual at::Generator generator(const Device& device) const = 0;
};

/// Returns the backend for a device's kind; never fails for a Device made by parse().
const DeviceBackend& backend_of(const Device& device);

/// Returns the backend of a kind by name; nullptr if unknown.
const DeviceBackend* find_backend(const std::string& kind);

/// Adds a kind of device to the process, permanently: Device::parse then accepts its name. Its tensors use libtorch's PrivateUse1, which
/// only one kind per process can have; resolve_device() selects that kind. Most programs use Parts::devices instead. Error(Usage) if the
/// name is known already, or has characters other than lower-case letters, digits and '_'.
void add_backend(std::shared_ptr<const DeviceBackend> backend);

/// Returns the backend of a device on which overflow saturates (Capabilities::saturating_overflow); nullptr for other devices, and for
/// kinds unknown to npu_train.
const DeviceBackend* saturating_backend(const c10::Device& device);

/// Returns Capabilities::all_fused_optimizers of a device; true for kinds unknown to npu_train.
bool has_all_fused_optimizers(const c10::Device& device);

/// Returns whether a device has _fused_sgd_ with momentum (Capabilities); true for kinds unknown to npu_train.
bool has_fused_sgd(const c10::Device& device);

/// Returns Capabilities::fp64 of a device; false for kinds unknown to npu_train.
bool has_fp64(const c10::Device& device);

/// Returns all kinds, available or not, in the search order of "auto": npu, cuda, cpu; then sim_npu and kinds added by the program, which
/// auto never selects.
std::vector<const DeviceBackend*> all_backends();

/// Returns the peak resident set of this process in bytes (VmHWM).
int64_t host_peak_rss();

// A base class for backends. It has everything that libtorch offers for a device without the device's own API. Your own backend gives its
// name to the constructor and implements why_not() and capabilities(), and activate() if a library must be loaded.

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
