// HCCL for torch_npu without Python, which needs a plugin: the errors of HCCL, and the report of a process without the plugin.
// tests/apps/npu_ranks_test.py tests the wheel.
#include "testing.hpp"

#include <filesystem>
#include <stdexcept>

#include "dist/c10d_collective.hpp"
#include "dist/device_transport.hpp"
#include "environment_variable.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

TEST_CASE("an error of HCCL is reported with CANN's reason, and without stack traces") {
  const auto said = [](const char* text) { return npu_train::detail::message_of(std::runtime_error(text)); };
  CHECK(said("error code is 1\n[ERROR] 2026 ERR02200\nEI0003: 3 ranks on one server\nframe #0") ==
        "error code is 1; EI0003: 3 ranks on one server");
  CHECK(said("error code is 1\nEnd of it: no\nException raised") == "error code is 1");
  CHECK(said("one line") == "one line");
}

TEST_CASE("without the plugin, and with a library that is another one, the reason says what to do") {
  const auto missing = npu_train::detail::why_no_hccl();
  CHECK(has(missing, "the library of HCCL is not found"));
  CHECK(has(missing, "-DNPU_TRAIN_TORCH_NPU_DIR"));
  const TempDir dir;
  fs::copy_file(fs::path(NPU_TRAIN_BINARY_DIR) / "tests/unfit_libraries/empty.so", dir / "libnpu_train_hccl.so");
  const EnvironmentVariable named("NPU_TRAIN_PLUGIN_DIR", dir.path().string());
  CHECK(has(npu_train::detail::why_no_hccl(), "has no function npu_train_make_hccl"));
}
