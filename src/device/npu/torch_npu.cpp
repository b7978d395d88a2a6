#include "device/npu/torch_npu.hpp"

#include <ATen/Context.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "device/npu/python_interpreter.hpp"
#include "device/npu/sim_cann.hpp"
#include "device/npu/torch_npu_errors.hpp"
#include "device/npu/torch_npu_wheel.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/plugin.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchNpuFile = "libtorch_npu.so";
constexpr const char* kTorchNpuVariable = "NPU_TRAIN_TORCH_NPU";

// Returns the wheel's version, from the name of its metadata folder: torch_npu-2.11.0.dist-info. "" without that folder.
std::string wheel_version(const fs::path& library) {
  const std::string start = "torch_npu-", end = ".dist-info";
  std::error_code none;
  const auto packages = fs::weakly_canonical(library, none).parent_path().parent_path().parent_path();
  for (fs::directory_iterator it(packages, none), last; !none && it != last; it.increment(none)) {
    const auto name = it->path().filename().string();
    if (name.starts_with(start) && name.ends_with(end) && name.size() > start.size() + end.size())
      return name.substr(start.size(), name.size() - start.size() - end.size());
  }
  return "";
}

// `tried` contains the places that were searched before.
void* open_library(std::string& opened, std::vector<std::string> tried) {
  for (const auto& path : torch_npu_places()) {
    if (path.find('/') != std::string::npos) {
      std::error_code none;
      if (!fs::exists(path, none)) {
        tried.push_back(path);
        continue;
      }
      check_torch_npu_version(path, wheel_version(path));
    }
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      opened = path;
      return handle;
    }
    const char* text = dlerror();
    const std::string error = text != nullptr ? text : "no reason given";
    if (error.starts_with(kTorchNpuFile) && error.find("cannot open shared object file") != std::string::npos)
      tried.push_back("the system's loader");
    else
      explain_loading(path, error);
  }
  fail_npu("torch_npu is not found (" + join(tried) + ")", what_to_install(usual_pythons(libtorch_folder()).front()));
}

bool is_registered() {
  return c10::is_privateuse1_backend_registered() && c10::get_privateuse1_backend() == "npu" &&
         c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1);
}

// Looks up the functions that only a library built with BUILD_LIBTORCH exports.
template <class LookUp>
void use_functions_without_python(const LookUp& function, TorchNpu& out) {
  void (*init)(c10::DeviceIndex) = nullptr;
  void (*finalize)() = nullptr;
  bool (*supports_inf_nan)() = nullptr;
  function("_ZN9torch_npu8init_npuEa", init);
  function("_ZN9torch_npu12finalize_npuEv", finalize);
  function("_ZN7c10_npu15IsSupportInfNanEv", supports_inf_nan);
  if (init != nullptr) out.init = [init] { init(0); };
  if (finalize != nullptr && !out.path.empty()) out.finalize = finalize;
  out.supports_inf_nan = supports_inf_nan;
}

bool is_set(const char* variable) {
  const char* set = std::getenv(variable);
  return set != nullptr && *set != '\0';
}

// Searches as docs/npu.md describes, in a process that has no torch_npu yet.
void find_and_load(TorchNpu& out) {
  load_sim_cann_if_asked();
  if (has_python_of_host()) return import_into_host();
  std::vector<std::string> tried;
  if (!is_set(kTorchNpuVariable)) {
    if (const auto environment = environment_with_torch_npu(tried)) return import_wheel(*environment, out);
  } else if (is_set("NPU_TRAIN_PYTHON")) {
    fail_npu("NPU_TRAIN_PYTHON and NPU_TRAIN_TORCH_NPU are both set",
             "set the first for the wheel of torch_npu, the second for a library without Python");
  }
  open_library(out.path, tried);
}

// True if load_torch_npu() would find a torch_npu. Runs interpreters only in other processes.
bool has_torch_npu() {
  const auto places = torch_npu_places();
  std::error_code none;
  const auto exists = [&](const std::string& path) { return path.find('/') != std::string::npos && fs::exists(path, none); };
  if (std::any_of(places.begin(), places.end(), exists)) return true;
  std::vector<std::string> tried;
  try {
    return !is_set(kTorchNpuVariable) && environment_with_torch_npu(tried).has_value();
  } catch (const Error&) {  // ignored here; a user who selects `device: npu` gets the error
    return false;
  }
}

}  // namespace

std::vector<std::string> torch_npu_places() {
  const auto in = [](const char* variable) -> fs::path {
    const char* set = std::getenv(variable);
    return set == nullptr ? "" : set;
  };
  if (const auto named = in(kTorchNpuVariable); !named.empty()) {
    std::error_code none;
    return {(fs::is_directory(named, none) ? named / kTorchNpuFile : named).string()};
  }
  std::vector<std::string> out;
  if (const auto prefix = in("TORCH_NPU_INSTALL_PREFIX"); !prefix.empty()) out.push_back((prefix / "lib" / kTorchNpuFile).string());
  if (const auto torch = libtorch_folder(); !torch.empty())
    out.push_back((torch.parent_path().parent_path() / "libtorch_npu/lib" / kTorchNpuFile).string());
  out.emplace_back(kTorchNpuFile);
  return out;
}

fs::path libtorch_folder() { return library_folder(reinterpret_cast<const void*>(&at::globalContext)); }

int count_ascend_nodes(const fs::path& dev) {
  const std::string start = "davinci";
  int out = 0;
  std::error_code none;
  for (fs::directory_iterator it(dev, none), last; !none && it != last; it.increment(none)) {
    const auto name = it->path().filename().string();
    if (name.starts_with(start) && name.size() > start.size() && std::isdigit(static_cast<unsigned char>(name[start.size()])) != 0) ++out;
  }
  return out;
}

int count_visible_npus() {
  const char* named = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  const int count =
      named != nullptr && *named != '\0' ? static_cast<int>(std::count(named, named + std::strlen(named), ',')) + 1 : count_ascend_nodes();
  return count > 0 && has_torch_npu() ? count : 0;
}

void load_torch_npu(TorchNpu& out) {
  if (!is_registered() || import_has_failed()) find_and_load(out);
  // Otherwise torch_npu is loaded: by the host program, by its Python, or by an earlier call that failed afterwards.
  if (!is_registered())
    fail_npu(out.path + " was loaded but registers no device npu", "it is not torch_npu's library; " + what_to_install());
  void* handle = dlopen(out.path.empty() ? kTorchNpuFile : out.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) handle = RTLD_DEFAULT;
  use_python_functions(out);
  const auto function = [&]<class Fn>(const char* name, Fn*& found) { found = reinterpret_cast<Fn*>(dlsym(handle, name)); };
  if (!out.init) use_functions_without_python(function, out);
  function("_ZN6at_npu6detail22getDefaultNPUGeneratorEa", out.default_generator);
  function("aclrtGetSocName", out.soc_name);
  function("aclrtGetMemInfo", out.memory_info);
}

}  // namespace npu_train::detail
