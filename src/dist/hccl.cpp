// HCCL of torch_npu. In a process with Python, torch_npu's wheel provides it as a backend for groups of c10d. Without Python, plugins/hccl
// provides it; this plugin is the only source that is compiled with the headers of torch_npu.
#include <dlfcn.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>

#include "dist/device_transport.hpp"
#include "hccl/npu_train_hccl.h"
#include "npu_train/core/error.hpp"
#include "npu_train/core/plugin.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/torch_npu_python.hpp"

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

// HCCL ends a collective that waits too long, with an error that names the collective. torch_npu's watchdog would end the process instead,
// so the watchdog is off unless the user has set its environment variable. Its timeout is longer than HCCL's by the default of
// HCCL_EXEC_TIMEOUT, because torch_npu compares the two timeouts.
constexpr const char* kMake = R"(
import os, torch, torch_npu
from datetime import timedelta
from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group
from torch_npu._C._distributed_c10d import ProcessGroupHCCL
group = _resolve_process_group(name)
options = ProcessGroupHCCL.Options()
options._timeout = options.op_timeout = timedelta(milliseconds=milliseconds, seconds=1837)
options.hccl_config = {'hccl_exec_timeout': max(1, milliseconds // 1000)}
variable = 'TORCH_HCCL_ASYNC_ERROR_HANDLING'
is_set = variable in os.environ
os.environ.setdefault(variable, '0')
try:
    backend = ProcessGroupHCCL(group.get_group_store(), group.rank(), group.size(), options)
finally:
    if not is_set: del os.environ[variable]
group._register_backend(torch.device('npu'), ProcessGroup.BackendType.CUSTOM, backend)
)";

// Creates a c10d group with the store, registers it by name while Python gives it a backend, and returns the backend.
BackendPtr make_in_python(const TransportPlace& place) {
  static std::atomic<int> number{0};
  const auto name = str_cat("npu_train/hccl/", number++);
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(place.store, place.rank, place.size);
  c10d::register_process_group(name, group);
  try {
    run_in_torch_npu_python(str_cat("name = '", name, "'\nmilliseconds = ", place.timeout.count(), kMake));
  } catch (const std::exception& e) {
    c10d::unregister_process_group(name);
    throw Error(ErrorKind::Device, "dist.backend", str_cat("torch_npu has not made its ProcessGroupHCCL: ", e.what()),
                "dist.backend=gloo reduces gradients in host memory");
  }
  c10d::unregister_process_group(name);
  return group->getBackend(c10::DeviceType::PrivateUse1);
}

}  // namespace

std::string why_no_hccl() {
  std::string out;
  if (!has_torch_npu_in_python()) find_plugin(out);
  return out;
}

BackendPtr make_hccl(const TransportPlace& place) {
  if (has_torch_npu_in_python()) return make_in_python(place);
  std::string none;
  return BackendPtr::reclaim(find_plugin(none)(place.store, place.rank, place.size, place.timeout.count()));
}

}  // namespace npu_train::detail
