#include "testing.hpp"

#include "npu_train/device/operator_support.hpp"

using namespace npu_train;
using npu_train::testing::error_of, npu_train::testing::has;

TEST_CASE("operators of every kind of support") {
  const AscendOperators table("910B1", "2.11");
  CHECK(table.soc() == "Ascend910B1");
  CHECK(table.bf16());
  const auto is = [&](const char* name, const char* overload, OperatorSupport support) {
    CAPTURE(name);
    CHECK((table.find("aten", name, overload).support == support));
  };
  is("relu", "", OperatorSupport::Native);
  is("add", "Tensor", OperatorSupport::Native);
  is("conv2d", "", OperatorSupport::Composite);
  is("scaled_dot_product_attention", "", OperatorSupport::Native);
  is("sspaddmm", "", OperatorSupport::Unsupported);
  is("bincount", "", OperatorSupport::Limited);
  is("linalg_eigh", "", OperatorSupport::CpuFallback);
  is("no_such_operator", "", OperatorSupport::Unknown);
  CHECK((table.find("torchvision", "nms", "").support == OperatorSupport::Custom));
  CHECK((table.find("npu_train", "batch_norm_act", "").support == OperatorSupport::Composite));
  const auto add = table.find("aten", "add", "Tensor").dtypes;
  CHECK(std::find(add.begin(), add.end(), "bf16") != add.end());
}

TEST_CASE("chips and versions that are not known are named") {
  CHECK_FALSE(AscendOperators("Ascend910A", "2.13").bf16());
  CHECK(has(error_of([] { AscendOperators("H100", "2.11"); }).what(), "'H100'"));
  CHECK(has(error_of([] { AscendOperators("910B1", "1.8"); }).what(), "2.11 to 2.13"));
  CHECK((AscendOperators("Ascend950", "2.11").find("aten", "bitwise_and_", "Tensor").support != OperatorSupport::Native));
}

TEST_CASE("dtypes have the words of the tables") {
  CHECK(listed_dtype("BFloat16") == "bf16");
  CHECK(listed_dtype("Float8_e4m3fn") == "float8_e4m3fn");
}
