// RAII wrappers of AscendCL objects.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "device/npu/ascendcl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail::acl {

inline constexpr const char* kWhere = "offline model";
inline constexpr const char* kCompileAgain =
    "compile the model again for this chip and version of CANN (npu_tool export --atc; npu-smi info lists the chip)";

/// Calls aclInit once per process, and aclFinalize after its last user.
class Runtime {
 public:
  Runtime() {
    const std::lock_guard lock(mutex_);
    if (users_ == 0) {
      const int code = functions().init(nullptr);
      ours_ = code != kRepeatedInit;  // otherwise torch_npu has called aclInit, and will also finalize it
      if (ours_) must(code, "aclInit");
    }
    ++users_;
  }
  ~Runtime() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0 && ours_) attempt(functions().finalize(), "aclFinalize");
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

 private:
  inline static std::mutex mutex_;
  inline static int users_ = 0;
  inline static bool ours_ = false;
};

/// The device with a context of its own, so that any thread can use the model.
class Session {
 public:
  explicit Session(int device) : device_(device) {
    const auto& call = functions();
    uint32_t count = 0;
    must(call.device_count(&count), "aclrtGetDeviceCount");
    check(device >= 0 && static_cast<uint32_t>(device) < count, ErrorKind::Device, kWhere, "there is no NPU ", device, "; this process ",
          count == 0 ? std::string("sees none") : str_cat("sees 0 to ", count - 1), "; hint: npu-smi info, ASCEND_RT_VISIBLE_DEVICES");
    must(call.set_device(device), str_cat("aclrtSetDevice(", device, ")"));
    try {
      must(call.create_context(&context_, device), "aclrtCreateContext");
      int mode = 0;
      must(call.run_mode(&mode), "aclrtGetRunMode");
      on_device_ = mode == kRunsOnDevice;
    } catch (...) {
      close();
      throw;
    }
  }
  ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Context context() const { return context_; }
  // Returns the direction of a copy to the device. A program that runs on the chip itself has only device memory.
  int to_device() const { return on_device_ ? kDeviceToDevice : kHostToDevice; }
  int to_host() const { return on_device_ ? kDeviceToDevice : kDeviceToHost; }

 private:
  void close() const {
    if (context_ != nullptr) attempt(functions().destroy_context(context_), "aclrtDestroyContext");
    attempt(functions().reset_device(device_), "aclrtResetDevice");
  }

  Runtime runtime_;
  int device_;
  Context context_ = nullptr;
  bool on_device_ = false;
};

/// Restores this thread's current context, if there is one, at the end of the scope.
class KeepsContext {
 public:
  KeepsContext() {
    if (functions().current_context(&before_) != kSuccess) before_ = nullptr;
  }
  ~KeepsContext() {
    if (before_ != nullptr) attempt(functions().set_context(before_), "aclrtSetCurrentContext");
  }
  KeepsContext(const KeepsContext&) = delete;
  KeepsContext& operator=(const KeepsContext&) = delete;

 private:
  Context before_ = nullptr;
};

/// A loaded file and its description.
class LoadedModel {
 public:
  explicit LoadedModel(const std::filesystem::path& file) {
    const auto& call = functions();
    try {
      must(call.load(file.c_str(), &id_), "aclmdlLoadFromFile", kCompileAgain);
    } catch (const Error& e) {
      // The device has worked up to this call, so the file must be the cause.
      if (e.kind() == ErrorKind::OutOfMemory) throw;
      throw Error(ErrorKind::Data, kWhere, file.string() + ": " + e.what(), "", std::current_exception());
    }
    desc_ = call.create_desc();
    const int code = desc_ == nullptr ? 200000 : call.get_desc(desc_, id_);
    if (code == kSuccess) return;
    close();
    must(code, "aclmdlGetDesc");
  }
  ~LoadedModel() { close(); }
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  uint32_t id() const { return id_; }
  Desc* desc() const { return desc_; }

 private:
  void close() const {
    if (desc_ != nullptr) attempt(functions().destroy_desc(desc_), "aclmdlDestroyDesc");
    attempt(functions().unload(id_), "aclmdlUnload");
  }

  uint32_t id_ = 0;
  Desc* desc_ = nullptr;
};

/// The buffers of all inputs, or of all outputs, in device memory.
class DeviceBuffers {
 public:
  DeviceBuffers() : set_(functions().create_dataset()) {
    check(set_ != nullptr, ErrorKind::OutOfMemory, kWhere, "aclmdlCreateDataset returned no data set");
  }
  ~DeviceBuffers() {
    const auto& call = functions();
    for (auto* buffer : buffers_) attempt(call.destroy_buffer(buffer), "aclDestroyDataBuffer");
    attempt(call.destroy_dataset(set_), "aclmdlDestroyDataset");
    for (auto* memory : memory_) attempt(call.release(memory), "aclrtFree");
  }
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  void add(size_t bytes) {
    const auto& call = functions();
    void* memory = nullptr;
    must(call.allocate(&memory, bytes, kHugePagesFirst), str_cat("aclrtMalloc of ", human_bytes(static_cast<double>(bytes))));
    memory_.push_back(memory);
    auto* buffer = call.create_buffer(memory, bytes);
    check(buffer != nullptr, ErrorKind::OutOfMemory, kWhere, "aclCreateDataBuffer returned no buffer");
    buffers_.push_back(buffer);
    must(call.add_buffer(set_, buffer), "aclmdlAddDatasetBuffer");
  }

  Dataset* get() const { return set_; }
  void* memory(size_t index) const { return memory_[index]; }

 private:
  Dataset* set_;
  std::vector<void*> memory_;
  std::vector<Buffer*> buffers_;
};

}  // namespace npu_train::detail::acl
