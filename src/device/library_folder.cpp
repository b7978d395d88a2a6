#include "device/library_folder.hpp"

#include <dlfcn.h>

#include <system_error>

namespace npu_train::detail {

std::filesystem::path library_folder(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
}

}  // namespace npu_train::detail
