#include "testing.hpp"

#include "device/facts/ascend_cards.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
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
  for (const auto* name : {"_linear_pointwise", "_reorder_linear_weight", "_convolution_pointwise"})  // operators of oneDNN, for CPUs only
    CHECK((table.find("mkldnn", name, "").support == OperatorSupport::Composite));
  CHECK((table.find("mkl", "_mkl_linear", "").support == OperatorSupport::Composite));
  is("_scaled_dot_product_flash_attention_for_cpu", "", OperatorSupport::Native);
  const auto add = table.find("aten", "add", "Tensor").dtypes;
  CHECK(std::find(add.begin(), add.end(), "bf16") != add.end());
}

TEST_CASE("chips and versions that are not known are named") {
  CHECK_FALSE(AscendOperators("Ascend910A", "2.13").bf16());
  CHECK(has(error_of([] { AscendOperators("H100", "2.11"); }).what(), "'H100'"));
  CHECK(has(error_of([] { AscendOperators("910B1", "1.8"); }).what(), "2.11 to 2.13"));
  CHECK((AscendOperators("Ascend950", "2.11").find("aten", "bitwise_and_", "Tensor").support != OperatorSupport::Native));
}

TEST_CASE("a chip or a series, in any case, and what was assumed") {
  const auto soc = [](const char* text) { return AscendOperators(text, "2.11").soc(); };
  CHECK(soc("910b3") == "Ascend910B3");
  CHECK(soc("ASCEND910B4-1") == "Ascend910B4_1");
  CHECK(soc("910B") == "Ascend910B1");
  CHECK(soc("910c") == "Ascend910_9392");
  CHECK(soc("910_93XX") == "Ascend910_9392");
  CHECK(soc("910_9362") == "Ascend910_9362");
  CHECK(soc("310p") == "Ascend310P3");
  CHECK(soc("310B") == "Ascend310B1");
  CHECK(soc("950pr_9599") == "Ascend950PR_9599");
  CHECK(AscendOperators("910B", "2.11").bf16());
  CHECK(has(AscendOperators("910B", "2.11").assumed(), "taken for a 910B1"));
  CHECK(AscendOperators("910B3", "2.11").assumed().empty());
  CHECK(has(AscendOperators("910A", "2.11").assumed(), "Atlas A2"));
  for (const char* text : {"910", "910x", "910B9", "910B12", "310", "950X", "910_93921", "", "Ascend", "A100"}) {
    CAPTURE(text);
    const auto error = error_of([&] { AscendOperators(text, "2.11"); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK(has(error.what(), "910B1 to 910B4, or the series 910B"));
  }
}

TEST_CASE("a card by the name of the vendor's pages, with the memory of an NPU") {
  const AscendOperators pro("Atlas 300I Pro", "2.11"), both("Atlas 300I/V Pro", "2.11"), first("atlas-300t (model 9000)", "2.11");
  CHECK(pro.soc() == "Ascend310P3");
  CHECK_FALSE(pro.bf16());
  CHECK(pro.memory() == int64_t{24} << 30);
  CHECK(has(pro.assumed(), "Atlas 300I Pro: 310P is a series"));
  CHECK(has(pro.assumed(), "an NPU has 24 GiB"));
  CHECK(both.soc() == pro.soc());
  CHECK(both.memory() == int64_t{24} << 30);
  CHECK(has(both.assumed(), "24 or 48 GiB: 24 are assumed"));
  CHECK(first.soc() == "Ascend910A");
  CHECK(first.memory() == 0);
  CHECK(has(first.assumed(), "taken for a 910A"));
  CHECK(AscendOperators("ATLAS_800I_A2", "2.11").memory() == int64_t{32} << 30);
  CHECK(AscendOperators("910B3", "2.11").memory() == 0);
  for (const char* text : {"Atlas", "Atlas 300", "300I Pro", "Atlas 300I Pro Max", "Atlas 300I (Pro)"}) {
    CAPTURE(text);
    CHECK(has(error_of([&] { AscendOperators(text, "2.11"); }).what(), "Atlas 300I Duo"));
  }
}

TEST_CASE("every card of the table is known") {
  for (const auto& row : npu_train::detail::facts_rows(facts::ascend_cards, "ascend_cards.tsv", 5)) {
    CAPTURE(std::string(row[0]));
    CHECK(AscendOperators(std::string(row[0]), "2.11").memory() % (int64_t{1} << 30) == 0);
    CHECK_FALSE(row[4].empty());
  }
}

TEST_CASE("limits by series hold for composite operators too, and a kernel outweighs the list") {
  const AscendOperators a2("910B1", "2.11"), next("950", "2.11");
  CHECK((a2.find("aten", "bilinear", "").support == OperatorSupport::Composite));
  const auto limited = next.find("aten", "bilinear", "");
  CHECK((limited.support == OperatorSupport::Limited));
  CHECK(limited.composite);
  CHECK(has(limited.limits, "series"));
  CHECK((a2.find("aten", "batch_norm", "").support == OperatorSupport::Limited));
  // Both are listed as unsupported, but one has a kernel.
  const auto pool = a2.find("aten", "adaptive_max_pool2d", "");
  CHECK((pool.support == OperatorSupport::Limited));
  CHECK(has(pool.limits, "a kernel is registered"));
  CHECK((a2.find("aten", "adaptive_max_pool1d", "").support == OperatorSupport::Unsupported));
}

TEST_CASE("dtypes have the words of the tables") {
  CHECK(listed_dtype("BFloat16") == "bf16");
  CHECK(listed_dtype("Float8_e4m3fn") == "float8_e4m3fn");
}
