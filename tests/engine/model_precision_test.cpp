#include "testing.hpp"

#include "npu_train/engine/model_precision.hpp"

#include "engine/short_run.hpp"
#include "npu_train/engine/make_model.hpp"
#include "npu_train/nn/named_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the device and the precision of a run") {
  const auto config = short_run("bf16-mixed");
  CHECK(run_device(config).is_cpu());
  CHECK(precision_options(config).mode == "bf16-mixed");
}

TEST_CASE("blocks that stay in fp32 keep their parameters, the others do not") {
  auto config = short_run();
  auto model = make_model(config.model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-true"}, Device{});
  const auto parameters = parameters_of(*model.module);
  const auto modules = amp_modules({.fp32_modules = {"head"}});
  const auto kept = fp32_parameters(model, modules, {"encoder.ln.weight"}, parameters, *precision);
  const auto holds = [&](const char* name) { return std::find(kept.begin(), kept.end(), name) != kept.end(); };
  CHECK(holds("encoder.ln.weight"));
  CHECK(holds("heads.head.weight"));
  CHECK_FALSE(holds("conv_proj.weight"));
}

TEST_CASE("lists that contradict each other, or name no block, are refused") {
  CHECK(has(error_of([] { amp_modules({.fp32_modules = {"head"}, .low_precision_modules = {"head"}}); }).what(), "head"));
  auto model = make_model(short_run().model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-mixed"}, Device{});
  CHECK(error_of([&] { keep_in_fp32(model, amp_modules({.fp32_modules = {"no_such_block"}}), Device{}, *precision); }).kind() ==
        ErrorKind::Usage);
}
