#include "device/npu/torch_npu_errors.hpp"

#include <torch/version.h>

#include <algorithm>
#include <array>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

// Returns the word in `text` that follows `start`; "" if `start` does not occur.
std::string word_after(const std::string& text, const std::string& start) {
  const auto at = text.find(start);
  if (at == std::string::npos) return "";
  const auto begin = at + start.size();
  return text.substr(begin, text.find_first_of(" \n,;)", begin) - begin);
}

bool starts_with_any(const std::string& name, std::initializer_list<const char*> starts) {
  return std::any_of(starts.begin(), starts.end(), [&](const char* start) { return name.starts_with(start); });
}

// Returns the library that the loader did not find; "" if the error has another cause.
std::string missing_library(const std::string& error) {
  return error.find(": cannot open shared object file") == std::string::npos ? "" : error.substr(0, error.find(':'));
}

const std::string& how_to_get_cann() {
  static const std::string text =
      "install CANN in the version that your torch_npu names (docs/npu.md) and run `source "
      "/usr/local/Ascend/ascend-toolkit/set_env.sh` (or where it is) in this shell; the driver's libraries are in "
      "/usr/local/Ascend/driver/lib64";
  return text;
}

}  // namespace

std::string torch_minor() { return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR); }

std::string what_to_install(const std::string& python) {
  return "npu_train was built with libtorch " + torch_minor() + " and needs torch_npu " + torch_minor() + ".*, for example from `" +
         python + " -m pip install 'torch-npu==" + torch_minor() +
         ".*' numpy pyyaml`, in the environment of this libtorch, and the CANN that it names";
}

void fail_npu(const std::string& what, const std::string& hint) { throw Error(ErrorKind::Device, "device npu", what, hint); }

void check_torch_npu_version(const std::string& path, const std::string& version) {
  if (!version.empty() && !version.starts_with(torch_minor() + "."))
    fail_npu(path + " is of torch_npu " + version + ", which does not fit libtorch " + torch_minor(), what_to_install());
}

void explain_loading(const std::string& path, const std::string& error) {
  const auto missing = missing_library(error);
  const auto symbol = word_after(error, "undefined symbol: ");
  if (missing.starts_with("libtorch_python") || starts_with_any(symbol, {"Py", "_Py"}))
    fail_npu(path + " is that of the Python wheel and works only in a process that runs Python (" + error + ")",
             "set NPU_TRAIN_PYTHON to the interpreter of its environment, which npu_train then uses, in place of NPU_TRAIN_TORCH_NPU");
  // Includes the symbols of sim_cann: they are missing if a library of sim_cann is loaded next to the libascendcl.so of another CANN.
  if (starts_with_any(symbol, {"acl", "Hccl", "hccl", "rt", "ge", "_ZN2ge", "_ZNK2ge", "Msprof", "_ZN8sim_cann", "_ZNK8sim_cann"}))
    fail_npu(path + " does not fit the CANN that is loaded: " + error, how_to_get_cann());
  if (missing.starts_with("libtorch") || missing.starts_with("libc10") || !symbol.empty())
    fail_npu(path + " does not fit libtorch " + torch_minor() + ": " + error, what_to_install());
  if (!missing.empty()) fail_npu(path + " needs " + missing + ", which is not found", "it is part of CANN: " + how_to_get_cann());
  fail_npu(path + " cannot be loaded: " + error, what_to_install());
}

}  // namespace npu_train::detail
