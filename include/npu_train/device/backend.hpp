/// The interface to a kind of device. One object per kind; a kind that is not available has an object too, which names what is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/device/device.hpp"

namespace at {
struct Generator;
class Tensor;
}  // namespace at

namespace npu_train {

/// Memory of a device in bytes. CPU: `allocated` and `reserved` are the resident set of the process, `peak` its highest, `total` the
/// memory of the machine or of the control group, whichever is smaller. Other devices: of libtorch's caching allocator; -1 if the device's
/// allocator does not report it.
struct MemoryStats {
  int64_t allocated = -1;
  int64_t peak = -1;
  int64_t reserved = -1;
  int64_t total = -1;
};

/// The capabilities of a device.
struct Capabilities {
  bool native_bf16 = false;             ///< multiplies bf16 in hardware
  bool native_fp16 = false;             ///< multiplies fp16 in hardware
  bool pinned_memory = false;           ///< copies from page-locked host memory overlap with computation
  bool streams = false;                 ///< work is queued: calls return before it is done
  bool channels_last = true;            ///< has kernels for that memory format
  bool saturating_overflow = false;     ///< an overflow gives the largest number, not inf: finite checks do not see it
  bool computes_without_units = true;   ///< bf16 and fp16 also where it has no units for them, slowly; false: not at all
  bool skips_on_device = true;          ///< its optimizer kernels take found_inf; false: the host reads it and decides about the step
  bool all_fused_optimizers = false;    ///< has all of libtorch's fused Adam and SGD; false: _fused_adamw_, and _fused_sgd_ with momentum
  bool fp64 = false;                    ///< has operators in fp64
  bool bf16_collectives = true;         ///< several processes exchange bf16
  bool ranks_by_powers_of_two = false;  ///< 1, 2, 4 or 8 processes on one machine train together, and no other number
};

/// The interface to one kind of device. Methods take the device because a kind may have several. Everything below count() throws
/// Error(Device) with why_not() if the kind is not available.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual std::string name() const = 0;
  /// Loads the libraries of this kind; called when a configuration or program names a device of it. Error(Device) if something is missing.
  virtual void activate() const {}
  /// Whether there are signs of such a device, by a look that loads nothing: where "auto" tries activate().
  virtual bool may_be_there() const { return is_available(); }
  /// Whether there is at least one device of this kind and this process can use it.
  virtual bool is_available() const = 0;
  /// If not available: a sentence that names what is missing and what to do. "" otherwise.
  virtual std::string why_not() const = 0;
  /// Devices of this kind; 0 when not available.
  virtual int count() const = 0;
  /// The number of devices of this kind that processes of this machine may use, counted without initialising one: train_app starts a
  /// process for each. 0 if it cannot be known.
  virtual int visible_count() const { return 0; }

  /// Waits until all work queued on `device` is done. Nothing on a CPU.
  virtual void synchronize(const Device& device) const = 0;
  virtual MemoryStats memory(const Device& device) const = 0;
  /// Starts a new peak at what is allocated now. On systems that cannot (no /proc/self/clear_refs) the old peak stays.
  virtual void reset_peak(const Device& device) const = 0;
  /// Gives what the allocator keeps for later back to the device. Nothing where it keeps nothing, or cannot be asked.
  virtual void empty_cache(const Device& /*device*/) const {}
  virtual Capabilities capabilities(const Device& device) const = 0;

  /// Where an overflow saturates (see Capabilities): whether one happened on `device` since the flag was cleared. Waits for the device.
  virtual bool overflow_flag(const Device& /*device*/) const { return false; }
  virtual void clear_overflow_flag(const Device& /*device*/) const {}

  /// loss.backward(), in the way that suits the device's threads.
  virtual void backward(const at::Tensor& loss) const;

  /// The generator that operators on `device` draw from. Its mutex is to be held while it is used.
  virtual at::Generator generator(const Device& device) const = 0;
};

/// The backend of a device's kind; never fails for a Device that parse() made.
const DeviceBackend& backend_of(const Device& device);

/// The backend of a kind by its name; nullptr if the process knows none.
const DeviceBackend* find_backend(const std::string& kind);

/// Adds a kind of device to the process, permanently: its name becomes one that Device::parse accepts. Its tensors are libtorch's
/// PrivateUse1, of which a process can use one kind: resolve_device() chooses it. Most programs use Parts::devices instead. Error(Usage)
/// for a name that is not made of lower-case letters, digits and '_', or that is already known.
void add_backend(std::shared_ptr<const DeviceBackend> backend);

/// The backend of a device on which overflow saturates (Capabilities); nullptr for other devices, also of kinds unknown to npu_train.
const DeviceBackend* saturating_backend(const c10::Device& device);

/// Capabilities::all_fused_optimizers of a device; true for kinds unknown to npu_train.
bool has_all_fused_optimizers(const c10::Device& device);

/// Capabilities::fp64 of a device; false for kinds unknown to npu_train.
bool has_fp64(const c10::Device& device);

/// All kinds, available or not, in the order in which "auto" looks: npu, cuda, cpu; then sim_npu and those of programs, which auto never
/// takes.
std::vector<const DeviceBackend*> all_backends();

/// Highest resident set of this process so far, in bytes (VmHWM).
int64_t host_peak_rss();

}  // namespace npu_train
