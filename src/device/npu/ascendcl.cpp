#include "device/npu/ascendcl.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail::acl {
namespace {

namespace fs = std::filesystem;

constexpr const char *kAscendCl = "AscendCL", *kAscendClFile = "libascendcl.so", *kAscendClVariable = "NPU_TRAIN_ASCENDCL";
constexpr const char* kInstallCann =
    "it is part of CANN: install the toolkit, or the package for inference (nnrt), and run its set_env.sh in this shell "
    "(`source /usr/local/Ascend/ascend-toolkit/set_env.sh`), or name the file in NPU_TRAIN_ASCENDCL";

std::string variable(const char* name) {
  const char* set = std::getenv(name);
  return set == nullptr ? "" : set;
}

bool no_such_file(const std::string& place, const std::string& reason) {
  return place.find('/') == std::string::npos && reason.starts_with(place) && reason.find("cannot open shared object") != std::string::npos;
}

void* open_library() {
  std::vector<std::string> tried;
  for (const auto& place : places()) {
    std::error_code none;
    if (place.find('/') != std::string::npos && !fs::exists(place, none)) {
      tried.push_back(place);
      continue;
    }
    // RTLD_GLOBAL, as if the program were linked with the library: CANN's libraries load each other by name.
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
    const char* text = dlerror();
    const std::string reason = text != nullptr ? text : "no reason given";
    if (!no_such_file(place, reason)) throw Error(ErrorKind::Device, kAscendCl, place + " cannot be loaded: " + reason, kInstallCann);
    tried.emplace_back("the system's loader");
  }
  throw Error(ErrorKind::Device, kAscendCl, std::string(kAscendClFile) + " is not found (" + join(tried) + ")", kInstallCann);
}

class Lookup {
 public:
  explicit Lookup(void* handle) : handle_(handle) {}

  template <class Fn>
  void operator()(const char* name, Fn*& out) {
    out = reinterpret_cast<Fn*>(dlsym(handle_, name));
    if (out == nullptr) missing_.emplace_back(name);
  }

  void finish() const {
    check(missing_.empty(), ErrorKind::Device, kAscendCl, kAscendClFile, " lacks ", join(missing_), "; hint: CANN 5.0 or later");
  }

 private:
  void* handle_;
  std::vector<std::string> missing_;
};

Functions look_up(void* handle) {
  Functions out{};
  Lookup get(handle);
  get("aclInit", out.init);
  get("aclFinalize", out.finalize);
  get("aclGetRecentErrMsg", out.recent_error);
  get("aclCreateDataBuffer", out.create_buffer);
  get("aclDestroyDataBuffer", out.destroy_buffer);
  get("aclrtSetDevice", out.set_device);
  get("aclrtResetDevice", out.reset_device);
  get("aclrtGetDeviceCount", out.device_count);
  get("aclrtGetRunMode", out.run_mode);
  get("aclrtCreateContext", out.create_context);
  get("aclrtDestroyContext", out.destroy_context);
  get("aclrtGetCurrentContext", out.current_context);
  get("aclrtSetCurrentContext", out.set_context);
  get("aclrtMalloc", out.allocate);
  get("aclrtFree", out.release);
  get("aclrtMemcpy", out.copy);
  get("aclmdlLoadFromFile", out.load);
  get("aclmdlUnload", out.unload);
  get("aclmdlCreateDesc", out.create_desc);
  get("aclmdlDestroyDesc", out.destroy_desc);
  get("aclmdlGetDesc", out.get_desc);
  get("aclmdlGetNumInputs", out.input_count);
  get("aclmdlGetNumOutputs", out.output_count);
  get("aclmdlGetInputSizeByIndex", out.input_bytes);
  get("aclmdlGetOutputSizeByIndex", out.output_bytes);
  get("aclmdlGetInputDimsV2", out.input_dims);
  get("aclmdlGetOutputDims", out.output_dims);
  get("aclmdlGetInputDataType", out.input_type);
  get("aclmdlGetOutputDataType", out.output_type);
  get("aclmdlGetInputNameByIndex", out.input_name);
  get("aclmdlGetOutputNameByIndex", out.output_name);
  get("aclmdlGetAippType", out.aipp_type);
  get("aclmdlGetDynamicBatch", out.batches);
  get("aclmdlSetDynamicBatchSize", out.set_batch);
  get("aclmdlCreateDataset", out.create_dataset);
  get("aclmdlDestroyDataset", out.destroy_dataset);
  get("aclmdlAddDatasetBuffer", out.add_buffer);
  get("aclmdlExecute", out.execute);
  get.finish();
  return out;
}

// Values of ACL_ERROR_BAD_ALLOC, ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_GE_MEMORY_ALLOCATION.
const std::set<int> kOutOfMemoryCodes{200000, 207001, 245000};

}  // namespace

std::vector<std::string> places() {
  if (const fs::path named = variable(kAscendClVariable); !named.empty()) {
    std::error_code none;
    return {(fs::is_directory(named, none) ? named / kAscendClFile : named).string()};
  }
  std::vector<fs::path> roots;
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"})
    if (auto root = variable(name); !root.empty()) roots.emplace_back(std::move(root));
  std::vector<fs::path> bases{"/usr/local/Ascend"};
  if (const auto home = variable("HOME"); home.starts_with("/")) bases.push_back(fs::path(home) / "Ascend");
  for (const auto& base : bases)
    for (const char* package : {"ascend-toolkit/latest", "cann", "nnrt/latest", "latest"}) roots.push_back(base / package);
  std::vector<std::string> out{kAscendClFile};
  for (const auto& root : roots) out.push_back((root / "lib64" / kAscendClFile).string());
  return out;
}

const Functions& functions() {
  static std::mutex mutex;
  static std::optional<Functions> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) loaded = look_up(open_library());
  return *loaded;
}

void must(int code, const std::string& call, const std::string& hint) {
  if (code == kSuccess) return;
  const char* text = functions().recent_error();
  std::string reason = text != nullptr ? text : "";
  while (!reason.empty() && (reason.back() == '\n' || reason.back() == ' ')) reason.pop_back();
  const auto number = std::to_string(code);
  throw Error(kOutOfMemoryCodes.count(code) != 0 ? ErrorKind::OutOfMemory : ErrorKind::Device, kAscendCl,
              call + " failed with " + number + (reason.empty() ? "" : ": " + reason),
              hint.empty() ? "npu_tool doctor --explain " + number : hint);
}

void attempt(int code, const char* call) noexcept {
  if (code == kSuccess) return;
  try {
    log(LogLevel::Warning, str_cat(call, " failed with ", code));
  } catch (...) {  // a destructor must not throw, even if logging fails
  }
}

}  // namespace npu_train::detail::acl
