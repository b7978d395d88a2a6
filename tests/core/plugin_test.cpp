#include "testing.hpp"

#include <filesystem>
#include <fstream>

#include "environment_variable.hpp"
#include "npu_train/core/plugin.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a plugin is loaded from the folder that NPU_TRAIN_PLUGIN_DIR names, and otherwise every place is reported") {
  std::string tried;
  CHECK(open_plugin("libnpu_train_none.so", tried) == nullptr);
  CHECK(has(tried, "npu_train/libnpu_train_none.so"));
  CHECK(has(tried, "libnpu_train_none.so: cannot open shared object file"));  // the reason of the system's loader

  const TempDir dir;
  const auto library = std::filesystem::path(NPU_TRAIN_BINARY_DIR) / "tests/unfit_libraries/empty.so";
  std::filesystem::copy_file(library, dir / "libnpu_train_none.so");
  const EnvironmentVariable named("NPU_TRAIN_PLUGIN_DIR", dir.path().string());
  CHECK(open_plugin("libnpu_train_none.so", tried) != nullptr);
  std::ofstream(dir / "libnpu_train_broken.so") << "no library";
  CHECK(open_plugin("libnpu_train_broken.so", tried) == nullptr);
  CHECK(has(tried, "libnpu_train_broken.so: file too short"));
}

TEST_CASE("the folder of the code that contains an address") {
  CHECK(library_folder(reinterpret_cast<const void*>(&open_plugin)) == std::filesystem::canonical("/proc/self/exe").parent_path());
  CHECK(library_folder(nullptr).empty());
}
