#include "device/npu/torch_npu.hpp"

#include <ATen/Context.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>

#include "npu_train/core/error.hpp"
#include "npu_train/core/plugin.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchNpuFile = "libtorch_npu.so";
constexpr const char* kTorchNpuVariable = "NPU_TRAIN_TORCH_NPU";

std::string torch_minor() { return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR); }

std::string what_to_install() {
  return "npu_train was built with libtorch " + torch_minor() + " and needs torch_npu " + torch_minor() +
         ".* built as a library without Python (BUILD_LIBTORCH of https://gitcode.com/Ascend/pytorch, branch v" + torch_minor() +
         ".0), and CANN in the version that this torch_npu names (9.1.0 for 2.11 and 2.12); name the file in " + kTorchNpuVariable;
}

[[noreturn]] void fail(const std::string& what, const std::string& hint) { throw Error(ErrorKind::Device, "device npu", what, hint); }

// Returns the wheel's version from the name of its metadata folder: torch_npu-2.11.0.dist-info.
std::optional<std::string> wheel_version(const fs::path& library) {
  const std::string start = "torch_npu-", end = ".dist-info";
  std::error_code none;
  const auto packages = fs::weakly_canonical(library, none).parent_path().parent_path().parent_path();
  for (fs::directory_iterator it(packages, none), last; !none && it != last; it.increment(none)) {
    const auto name = it->path().filename().string();
    if (name.starts_with(start) && name.ends_with(end) && name.size() > start.size() + end.size())
      return name.substr(start.size(), name.size() - start.size() - end.size());
  }
  return std::nullopt;
}

bool is_python_symbol(const std::string& name) { return name.starts_with("Py") || name.starts_with("_Py"); }

// Translates an error of dlopen into what to install.
[[noreturn]] void explain(const std::string& path, const std::string& error) {
  const auto after = [&](const char* text) {
    const auto at = error.find(text);
    return at == std::string::npos ? std::string() : error.substr(at + std::string(text).size());
  };
  const std::string missing = error.find(": cannot open shared object file") == std::string::npos ? "" : error.substr(0, error.find(':'));
  const std::string symbol = after("undefined symbol: ");
  if (missing.starts_with("libtorch_python") || is_python_symbol(symbol))
    fail(path + " is that of the Python wheel and works only in a process that runs Python (" + error + ")",
         what_to_install() + "; or import torch_npu in the Python process that loads this library");
  if (missing.starts_with("libtorch") || missing.starts_with("libc10") || !symbol.empty())
    fail(path + " does not fit libtorch " + torch_minor() + ": " + error, what_to_install());
  if (!missing.empty() && missing.find(kTorchNpuFile) == std::string::npos)
    fail(path + " needs " + missing + ", which is not found",
         "it is part of CANN: install CANN in the version that your torch_npu names "
         "(9.1.0 for 2.11 and 2.12) and run `source /usr/local/Ascend/ascend-toolkit/set_env.sh` (or where it is) in this shell; the "
         "driver's "
         "libraries are in /usr/local/Ascend/driver/lib64");
  fail(path + " cannot be loaded: " + error, what_to_install());
}

void check_wheel(const std::string& path) {
  const auto version = wheel_version(path);
  if (version && !version->starts_with(torch_minor() + "."))
    fail(path + " is of torch_npu " + *version + ", which does not fit libtorch " + torch_minor(), what_to_install());
}

void* open_library(std::string& opened) {
  std::vector<std::string> tried;
  for (const auto& path : torch_npu_places()) {
    if (path.find('/') != std::string::npos) {
      std::error_code none;
      if (!fs::exists(path, none)) {
        tried.push_back(path);
        continue;
      }
      check_wheel(path);
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
      explain(path, error);
  }
  fail(std::string(kTorchNpuFile) + " is not found (" + join(tried) + ")", what_to_install());
}

template <class Fn>
void look_up(void* handle, const char* name, Fn*& out) {
  out = reinterpret_cast<Fn*>(dlsym(handle, name));
}

bool is_registered() {
  return c10::is_privateuse1_backend_registered() && c10::get_privateuse1_backend() == "npu" &&
         c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1);
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
  if (const auto torch = library_folder(reinterpret_cast<const void*>(&at::globalContext)); !torch.empty()) {
    const auto packages = torch.parent_path().parent_path();
    for (const char* package : {"libtorch_npu", "torch_npu"}) out.push_back((packages / package / "lib" / kTorchNpuFile).string());
  }
  out.emplace_back(kTorchNpuFile);
  return out;
}

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
  const auto places = torch_npu_places();
  std::error_code none;
  const auto exists = [&](const std::string& path) { return path.find('/') != std::string::npos && fs::exists(path, none); };
  if (std::none_of(places.begin(), places.end(), exists)) return 0;
  const char* named = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  return named != nullptr && *named != '\0' ? static_cast<int>(std::count(named, named + std::strlen(named), ',')) + 1
                                            : count_ascend_nodes();
}

void load_torch_npu(TorchNpu& out) {
  void* handle = nullptr;
  if (is_registered()) {  // linked by the host program, imported in its Python, or loaded by an earlier call that failed afterwards
    handle = dlopen(out.path.empty() ? kTorchNpuFile : out.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) handle = RTLD_DEFAULT;
  } else {
    handle = open_library(out.path);
  }
  if (!is_registered()) fail(out.path + " was loaded but registers no device npu", "it is not torch_npu's library; " + what_to_install());
  look_up(handle, "_ZN9torch_npu8init_npuEa", out.init);
  look_up(handle, "_ZN9torch_npu12finalize_npuEv", out.finalize);
  look_up(handle, "_ZN6at_npu6detail22getDefaultNPUGeneratorEa", out.default_generator);
  look_up(handle, "_ZN7c10_npu15IsSupportInfNanEv", out.supports_inf_nan);
  look_up(handle, "aclrtGetSocName", out.soc_name);
  look_up(handle, "aclrtGetMemInfo", out.memory_info);
}

}  // namespace npu_train::detail
