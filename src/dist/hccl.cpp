// HCCL of torch_npu, through the plugin plugins/hccl: only the plugin is compiled with the headers of torch_npu.
#include <dlfcn.h>

#include "dist/device_transport.hpp"
#include "hccl/npu_train_hccl.h"
#include "npu_train/core/plugin.hpp"

namespace npu_train::detail {
namespace {

// Returns the plugin's function; nullptr, with the reason in `why_not`, if it is not found.
npu_train_make_hccl_fn* find_plugin(std::string& why_not) {
  std::string tried;
  void* library = open_plugin("libnpu_train_hccl.so", tried);
  if (library == nullptr) {
    why_not = "the library of HCCL is not found: " + tried +
              "; hint: build npu_train with -DNPU_TRAIN_TORCH_NPU_DIR=DIR, the folder of torch_npu, and name the folder of the library in "
              "NPU_TRAIN_PLUGIN_DIR";
    return nullptr;
  }
  auto* const make = reinterpret_cast<npu_train_make_hccl_fn*>(::dlsym(library, NPU_TRAIN_MAKE_HCCL));
  if (make == nullptr)
    why_not = std::string("the library of HCCL has no function ") + NPU_TRAIN_MAKE_HCCL + "; hint: it must be that of this npu_train";
  return make;
}

}  // namespace

std::string why_no_hccl() {
  std::string out;
  find_plugin(out);
  return out;
}

BackendPtr make_hccl(const TransportPlace& place) {
  std::string none;
  return BackendPtr::reclaim(find_plugin(none)(place.store, place.rank, place.size, place.timeout.count()));
}

}  // namespace npu_train::detail
