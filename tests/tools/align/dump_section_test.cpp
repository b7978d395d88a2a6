#include "testing.hpp"

#include "npu_train/tools/align/dump_section.hpp"

#include "engine/short_run.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/json.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

Parts with_dump() {
  auto parts = builtin_parts();
  add_dump(parts);
  return parts;
}

std::string refused(const std::string& yaml) {
  return error_of([&] { bind_config(parse_yaml(yaml, "a.yaml"), with_dump()); }).what();
}

}  // namespace

TEST_CASE("a run with the section dumps its steps, with the facts that decide rounding") {
  TempDir dir;
  auto config = short_run("bf16-mixed");
  config.cpu_low_precision = "emulated";
  config.trainer.max_steps = 2;
  config.trainer.gradient_clip_val = 0.5;
  config.sections["dump"] = {{"dir", (dir / "d").string()}, {"steps", ConfigNode::list({"1"})}};
  Trainer(config, with_dump()).fit();
  CHECK_FALSE(fs::exists(dir / "d/step0"));
  const auto dump = load_json(dir / "d/step1/rank0/dump.json");
  const auto text = dump.dump(0);
  for (const char* fact : {"\"cpu\"", "bf16-mixed", "emulated", "norm 0.5", "vit_tiny_cifar10"}) CHECK_MESSAGE(has(text, fact), fact);
  CHECK(has(text, "Module.conv_proj.Conv2d.forward.0"));
}

TEST_CASE("without a folder of its own a dump is in the run's") {
  TempDir dir;
  auto config = short_run();
  config.output.dir = dir.path().string();
  config.trainer.max_steps = 1;
  config.sections["dump"] = ConfigNode::map();
  const auto result = Trainer(config, with_dump()).fit();
  CHECK(fs::exists(fs::path(result.run_dir) / "dump/step0/rank0/dump.json"));
  const auto written = bind_config(load_yaml((fs::path(result.run_dir) / "config.yaml").string()), with_dump());
  CHECK(written.sections.count("dump") == 1);
}

TEST_CASE("errors in the section are found before anything is opened") {
  CHECK(has(refused("dump: {level: L0}"), "the name here is module"));
  CHECK(has(refused("dump: {sample: 0}"), "dump.sample"));
  const auto text = refused("dump: {steps: [6-4]}");
  CHECK_MESSAGE(has(text, "dump.steps: '6-4' ends before its start"), text);
  auto config = short_run();
  config.sections["dump"] = {{"sample", 0.0}};
  CHECK(has(error_of([&] { Trainer(config, with_dump()); }).what(), "dump.sample"));
}
