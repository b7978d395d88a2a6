#include "testing.hpp"

#include "npu_train/device/torch_npu_python.hpp"

#include "device_under_test.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {
const bool kOnNpu = name_of_device_under_test().starts_with("npu");
}

TEST_CASE("a process without an interpreter has no torch_npu in Python" * only_if(!kOnNpu, "device npu starts an interpreter")) {
  CHECK_FALSE(npu_train::detail::has_torch_npu_in_python());
}

TEST_CASE("statements run where torch_npu is imported" * only_if(kOnNpu, "only device npu starts an interpreter")) {
  static_cast<void>(device_under_test());
  REQUIRE(npu_train::detail::has_torch_npu_in_python());
  CHECK(npu_train::detail::run_in_torch_npu_python("import torch\nresult = torch.npu.device_count()\n") == "2");
  CHECK_THROWS_WITH(npu_train::detail::run_in_torch_npu_python("raise ValueError('why')\n"), "ValueError: why");
}
