#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/tools/align/compare.hpp"
#include "tools/align/compared_runs.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using Cause = Divergence::Cause;

TEST_CASE("a value with a different shape is not called infinite") {
  const auto run = [](const std::filesystem::path& dir, const std::string& shape) {
    CraftedDump dump(dir);
    dump.add("Module.first.Linear.forward.0", CraftedDump::tensor("[4, 2]"), CraftedDump::tensor("[4, 2]"));
    dump.add("Module.second.Linear.forward.0", CraftedDump::tensor(shape), CraftedDump::tensor("[4, 2]"));
    return dump.write();
  };
  const TempDir dir;
  const auto result = compare_dumps(run(dir / "a", "[4, 3]"), run(dir / "b", "[4, 5]"));
  CHECK(result.first.layer == "second");
  CHECK((result.first.cause == Cause::Layer));
  CHECK(has(result.first.sentence, "produces outputs that are differently shaped ([4, 3] and [4, 5])"));
  CHECK_FALSE(has(result.first.sentence, "finite"));
}

TEST_CASE("running statistics that one program does not dump make no other model") {
  const auto run = [](const std::filesystem::path& dir, bool running, double output) {
    CraftedDump dump(dir);
    for (int i = 0; i < 4; ++i) {
      const std::string moved =
          running ? R"(, "running_mean": )" + CraftedDump::tensor("[4]") + R"(, "running_var": )" + CraftedDump::tensor("[4]") : "";
      dump.add_call("Module.bn" + std::to_string(i) + ".BatchNorm2d.forward.0",
                    R"({"input_args": [)" + CraftedDump::tensor("[2, 4]") + R"(], "output": [)" +
                        CraftedDump::tensor("[2, 4]", i == 2 ? output : 1) + R"(], "parameters": {"weight": )" +
                        CraftedDump::tensor("[4]") + moved + "}}");
    }
    return dump.write();
  };
  const TempDir dir;
  CHECK(compare_dumps(run(dir / "a", true, 1), run(dir / "b", false, 1)).agrees);
  const auto result = compare_dumps(run(dir / "c", true, 1), run(dir / "d", false, 1.5));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Layer));
  CHECK(result.first.layer == "bn2");
}

TEST_CASE("different models are reported as such, and their common part is compared") {
  const auto run = [](const std::filesystem::path& dir, int layers, const std::string& first = "conv", double loss = 1) {
    CraftedDump dump(dir, R"("model": ")" + first + "\"");
    for (int i = 0; i < layers; ++i)
      dump.add_layer("Module." + first + std::to_string(i) + ".Conv2d.forward.0", CraftedDump::tensor("[4, 2]"),
                     CraftedDump::tensor("[4, 2]"), CraftedDump::tensor("[" + std::to_string(layers) + ", 2]"));
    dump.add_layer("Module.head.Linear.forward.0", CraftedDump::tensor("[4, 3]", loss), CraftedDump::tensor("[4, 2]"),
                   CraftedDump::tensor("[3, 2]"));
    return dump.write();
  };
  const TempDir dir;
  const auto result = compare_dumps(run(dir / "a", 2, "conv"), run(dir / "b", 3, "block", 2));
  CAPTURE(explained(result));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Model));
  CHECK(has(result.first.sentence, "A (conv) has 3 layers with 14 parameters, 2 of them not in the other"));
  CHECK(has(result.first.sentence, "B (block) has 4 layers with 24 parameters, 3 of them not in the other"));
  CHECK(has(explained(result), "in the common part: head"));
  CHECK(result.steps[0].compared > 0);
  // the models are different if all widths differ; a single added layer is reported as that layer
  CHECK((compare_dumps(run(dir / "c", 9), run(dir / "d", 10)).first.cause == Cause::Model));
  const auto deeper = [&](const std::string& name, int layers) {
    CraftedDump dump(dir / name);
    for (int i = 0; i < layers; ++i)
      dump.add_layer("Module.conv" + std::to_string(i) + ".Conv2d.forward.0", CraftedDump::tensor("[4, 2]"), CraftedDump::tensor("[4, 2]"),
                     CraftedDump::tensor("[2, 2]"));
    return dump.write();
  };
  const auto one_more = compare_dumps(deeper("e", 9), deeper("f", 10));
  CHECK_FALSE(has(one_more.first.sentence, "different models"));
  CHECK(has(one_more.first.sentence, "conv9"));
}

TEST_CASE("one fused weight agrees with three if the layers' outputs agree") {
  const auto run = [](const std::filesystem::path& dir, const std::vector<std::string>& layers, const std::string& weight) {
    CraftedDump dump(dir);
    for (const auto& layer : layers)
      dump.add_layer("Module.attention." + layer + ".forward.0", CraftedDump::tensor("[4, 2]"), CraftedDump::tensor("[4, 2]"),
                     CraftedDump::tensor(weight));
    dump.add_layer("Module.attention.out.Linear.forward.0", CraftedDump::tensor("[4, 2]"), CraftedDump::tensor("[4, 2]"),
                   CraftedDump::tensor("[2, 2]"));
    return dump.write();
  };
  const TempDir dir;
  const auto fused = run(dir / "a", {"qkv.Parameter"}, "[6, 2]");
  const auto split = compare_dumps(fused, run(dir / "b", {"q.Linear", "k.Linear", "v.Linear"}, "[2, 2]"));
  CAPTURE(to_text(split));
  CHECK(split.agrees);
  CHECK_FALSE(split.complete);
  CHECK(has(to_text(split), "the parameters of attention have equal numbers on both sides"));
  CHECK_FALSE(compare_dumps(fused, run(dir / "c", {"q.Linear", "k.Linear"}, "[2, 2]")).agrees);
}
