#include "testing.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/analyze/analyze_run.hpp"

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

TEST_CASE("a run that is meant for another device is analysed on the CPU, in the precision that the chip would take") {
  for (const char* device : {"npu", "cuda", "auto"}) {
    auto config = small_run("auto");
    config.device = device;
    CAPTURE(device);
    const auto modern = analyze_run(config, {.soc = "910B"});
    CHECK(std::any_of(modern.operators.begin(), modern.operators.end(), [](const auto& op) { return op.use.autocast == "to bf16"; }));
    REQUIRE_FALSE(modern.notes.empty());
    CHECK(has(modern.notes[0], "bf16-mixed"));
  }
  auto config = small_run("auto");
  config.device = "npu";
  const auto first = analyze_run(config, {.soc = "910A"});
  CHECK(std::any_of(first.operators.begin(), first.operators.end(), [](const auto& op) { return op.use.autocast == "to fp16"; }));
}

TEST_CASE("findings do not depend on the units of this CPU") {
  const auto kinds = [](const std::string& choice) {
    auto config = small_run("bf16-mixed");
    config.cpu_low_precision = choice;
    std::vector<std::string> out;
    for (const auto& f : analyze_run(config).findings) out.push_back(f.kind + " " + f.subject);
    return out;
  };
  CHECK((kinds("native") == kinds("emulated")));
}

TEST_CASE("unscaling and clipping are phases of their own") {
  auto config = small_run("16-mixed");
  config.trainer.gradient_clip_val = 1;
  std::vector<std::string> phases;
  const auto result = analyze_run(config);
  for (const auto& op : result.operators) phases.push_back(op.use.phase);
  for (const char* phase : {"unscale", "clip"}) {
    CAPTURE(phase);
    CHECK(std::count(phases.begin(), phases.end(), phase) > 0);
  }
  CHECK(result.verdict() == "ready");
}

TEST_CASE("a trial needs a device by name") {
  const auto error = error_of([] { try_run(small_run("32-true"), "auto"); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "by name"));
}

TEST_CASE("an unknown chip is reported before anything runs") {
  auto config = small_run("32-true");
  config.data.options.set("root", ConfigNode("/nowhere"));
  config.data.name = "cifar10";
  CHECK(has(error_of([&] { analyze_run(config, {.soc = "H100"}); }).what(), "no Ascend chip"));
}
