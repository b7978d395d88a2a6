#include "device/npu/sim_cann.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/plugin.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSimCann = "NPU_TRAIN_SIM_CANN";

// The simulated libraries. They have the names by which torch_npu loads CANN's libraries, so the loader uses them instead of CANN's.
constexpr std::array kLibraries = {"libascendcl.so",        "libruntime.so", "libgraph.so", "libge_runner.so", "libacl_op_compiler.so",
                                   "libacl_tdt_channel.so", "libatb.so",     "libhccl.so",  "libopapi.so"};

// Returns the folders to search: `set`, or, if it is "1", the folders in a build, next to an installed program, and next to an installed
// shared library.
std::vector<std::string> sim_cann_places(const std::string& set) {
  if (set != "1") return {set};
  const auto here = library_folder(reinterpret_cast<const void*>(&load_sim_cann_if_asked));
  return {(here / "../lib/sim_cann").string(), (here / "../lib/npu_train/sim_cann").string(), (here / "npu_train/sim_cann").string()};
}

std::string file_of(void* library) {
  void* const function = ::dlsym(library, "aclInit");
  Dl_info info{};
  std::error_code none;
  return function != nullptr && ::dladdr(function, &info) != 0 ? fs::weakly_canonical(info.dli_fname, none).string() : "";
}

}  // namespace

void load_sim_cann_if_asked() {
  const char* set = std::getenv(kSimCann);
  if (set == nullptr || *set == '\0') return;
  const auto where = std::string(kSimCann) + "=" + set;
  const char* home = std::getenv("ASCEND_HOME_PATH");
  check(home == nullptr || *home == '\0', ErrorKind::Device, "device npu", where,
        " selects the simulated CANN, and ASCEND_HOME_PATH=", home != nullptr ? home : "",
        " another one; hint: unset one of them: a process can have only one CANN");
  const auto places = sim_cann_places(set);
  std::error_code none;
  fs::path folder;
  for (const auto& place : places)
    if (folder.empty() && fs::exists(fs::path(place) / kLibraries[0], none)) folder = fs::weakly_canonical(place, none);
  check(!folder.empty(), ErrorKind::Device, "device npu", where, ": there is no ", kLibraries[0], " in ", join(places),
        "; allowed: 1, or the folder of the libraries; hint: build npu_train with -DNPU_TRAIN_BUILD_SIM_CANN=ON");
  if (void* const loaded = ::dlopen(kLibraries[0], RTLD_NOW | RTLD_NOLOAD)) {
    const auto file = file_of(loaded);
    check(file == fs::weakly_canonical(folder / kLibraries[0], none), ErrorKind::Device, "device npu", where,
          " selects the simulated CANN, and this process has loaded ", file, "; hint: set it before the program starts");
  }
  for (const char* name : kLibraries) {
    if (::dlopen((folder / name).c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) continue;
    const char* const reason = ::dlerror();
    throw Error(ErrorKind::Device, "device npu", std::string("the simulated CANN cannot be loaded: ") + (reason != nullptr ? reason : ""));
  }
}

}  // namespace npu_train::detail
