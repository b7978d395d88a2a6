#include "testing.hpp"

#include <algorithm>

#include "npu_train/engine/analyze_run.hpp"

using namespace npu_train;
using npu_train::testing::error_of, npu_train::testing::has;

namespace {

RunConfig small_run(const std::string& precision) {
  RunConfig config;
  config.device = "cpu";
  config.precision = precision;
  config.model = {.name = "vit_tiny_cifar10"};
  config.model.options.set("depth", ConfigNode(int64_t{1}));
  config.data.name = "generated";
  config.data.options.set("batch_size", ConfigNode(int64_t{4}));
  config.output.dir = "";
  return config;
}

}  // namespace

TEST_CASE("a configured run is analysed in all its phases") {
  const auto result = analyze_run(small_run("bf16-mixed"));
  std::vector<std::string> phases;
  bool low = false;
  for (const auto& op : result.operators) {
    phases.push_back(op.use.phase);
    low |= op.use.autocast == "to bf16";
  }
  for (const char* phase : {"forward", "backward", "optimizer"}) {
    CAPTURE(phase);
    CHECK(std::count(phases.begin(), phases.end(), phase) > 0);
  }
  CHECK(low);
  CHECK(result.verdict() != "blocked");
}

TEST_CASE("a chip that is not known is told before anything runs") {
  auto config = small_run("32-true");
  config.data.options.set("root", ConfigNode("/nowhere"));
  config.data.name = "cifar10";
  CHECK(has(error_of([&] { analyze_run(config, {.soc = "H100"}); }).what(), "no Ascend chip"));
}
