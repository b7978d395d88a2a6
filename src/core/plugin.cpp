#include "npu_train/core/plugin.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <system_error>
#include <vector>

#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> places(const std::string& file) {
  std::vector<std::string> out;
  if (const char* set = std::getenv("NPU_TRAIN_PLUGIN_DIR"); set != nullptr && *set != '\0') out.push_back((fs::path(set) / file).string());
  if (const auto here = library_folder(reinterpret_cast<const void*>(&places)); !here.empty())
    for (const char* beside : {"../lib/npu_train", "npu_train", "."}) out.push_back((here / beside / file).lexically_normal().string());
  out.push_back(file);  // searched by the system's loader
  return out;
}

}  // namespace

void* open_plugin(const std::string& file, std::string& tried) {
  std::vector<std::string> failed;
  for (const auto& path : places(file)) {
    std::error_code ignored;
    if (path.find('/') != std::string::npos && !fs::exists(path, ignored)) {
      failed.push_back(path);
      continue;
    }
    if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* reason = ::dlerror();
    failed.emplace_back(reason != nullptr ? reason : "no reason given");
  }
  tried = join(failed, "; ");
  return nullptr;
}

fs::path library_folder(const void* address) {
  Dl_info info{};
  void* found = nullptr;
  if (::dladdr1(address, &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) return {};
  // The name is empty for the program itself. dladdr() does not help: it returns argv[0], which is only "train_app" for a program found
  // through PATH.
  const std::string name = static_cast<const link_map*>(found)->l_name;
  std::error_code ignored;
  return fs::weakly_canonical(name.empty() ? "/proc/self/exe" : name, ignored).parent_path();
}

}  // namespace npu_train
