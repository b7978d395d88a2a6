#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/tools/align/compare.hpp"
#include "tools/align/compared_runs.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a reference of another network or with NaN is refused, by name") {
  Runs runs;
  const auto a = runs.run("a", {.input = 1.001}), b = runs.run("b");
  const auto why = [&](const std::string& reference) {
    return std::string(error_of([&] { compare_dumps(a, b, {.reference = reference}); }).what());
  };
  CraftedDump other(runs.dir() / "other");
  other.add("Module.fc.Linear.forward.0", CraftedDump::tensor("[2, 3]"), CraftedDump::tensor("[2, 7]"));
  CHECK(has(why(other.write().string()), "have no counterpart of the same shape"));
  const auto nan = runs.run("nan", {.in_net = kNanWeight});
  CHECK(has(why(nan), "are not finite although those of both runs are, the first Module.norm"));
  CHECK(has(why(nan), nan));
}

TEST_CASE("with a reference only errors out of proportion fail") {
  Runs runs;
  // A and B round their inputs equally much in opposite directions, so neither is at fault
  const auto reference = runs.run("r");
  const auto b = runs.run("b", {.input = 1.01, .facts = kElsewhere});
  const auto a = runs.run("a", {.input = 0.99, .facts = kElsewhere});
  CHECK_FALSE(compare_dumps(a, b).agrees);
  CompareOptions how;
  how.reference = reference;
  how.proportion = 4;
  const auto fair = compare_dumps(a, b, how);
  CHECK(fair.steps[0].failed < compare_dumps(a, b).steps[0].failed);
  const auto bad = runs.run("bad", {.input = 1.3, .facts = kElsewhere});
  CHECK_FALSE(compare_dumps(bad, b, how).agrees);
}

TEST_CASE("the loss scale is divided out once, with a reference too") {
  Runs runs;
  const auto dump = [&](const std::string& name, double scale, const std::string& facts) {
    CraftedDump out(runs.dir() / name, facts);
    for (const auto* layer : {"a", "b"})
      out.add_backward("Module." + std::string(layer) + ".Linear.backward.0",
                       out.tensor(std::string(layer) + ".pt", at::full({4, 2}, scale), "[4, 2]"));
    return out.write();
  };
  const auto scaled = dump("scaled", 1024, R"("loss_scale": 1024.0)"), plain = dump("plain", 1, ""), reference = dump("reference", 1, "");
  for (const auto& [a, b] : {std::pair(scaled, plain), std::pair(plain, scaled), std::pair(scaled, scaled)}) {
    CompareOptions how;
    how.reference = reference;
    const auto result = compare_dumps(a, b, how);
    CAPTURE(to_text(result));
    CHECK(result.agrees);
  }
}

TEST_CASE("statistics alone are judged by what precision costs the worst of their kind") {
  const auto dump = [](const std::filesystem::path& dir, const std::vector<double>& errors) {
    CraftedDump out(dir);
    for (size_t i = 0; i < errors.size(); ++i)
      out.add("Module.l" + std::to_string(i) + ".Linear.forward.0", CraftedDump::tensor("[4, 2]", 1 + errors[i], "bfloat16"));
    return out.write();
  };
  const TempDir dir;
  CompareOptions how;
  how.reference = dump(dir / "r", {0, 0, 0});
  const auto b = dump(dir / "b", {1e-2, 1e-5, 8e-3});  // the second value agrees by luck
  CHECK(compare_dumps(dump(dir / "a", {9e-3, 1e-2, 7e-3}), b, how).agrees);
  const auto bad = compare_dumps(dump(dir / "c", {9e-3, 6e-2, 7e-3}), b, how);
  CHECK(bad.steps.at(0).failed == 1);
  CHECK(has(to_text(bad), "error relative to the reference 0.06, that of the other run 1e-5, allowed 0.02"));
}

TEST_CASE("with a reference a coarser precision may cost more, and no advice asks for a reference") {
  const auto dump = [](const std::filesystem::path& dir, double error, const std::string& dtype) {
    CraftedDump out(dir, R"("precision": ")" + dtype + "\"");
    double total = 1;
    for (const auto* layer : {"a", "b", "c"}) {
      const auto before = CraftedDump::tensor("[4, 2]", total, dtype);
      out.add("Module." + std::string(layer) + ".Linear.forward.0", CraftedDump::tensor("[4, 2]", total *= 1 + error, dtype), before);
    }
    return out.write();
  };
  const TempDir dir;
  const auto reference = dump(dir / "r", 0, "float32"), bf16 = dump(dir / "a", 4e-3, "bfloat16"), fp16 = dump(dir / "b", 5e-4, "float16");
  CompareOptions how;
  how.reference = reference;
  CHECK(compare_dumps(bf16, fp16, how).agrees);
  CHECK(compare_dumps(fp16, bf16, how).agrees);
  const auto bad = compare_dumps(dump(dir / "c", 4e-2, "bfloat16"), fp16, how);
  CAPTURE(explained(bad));
  CHECK_FALSE(bad.agrees);
  CHECK_FALSE(has(explained(bad), "reference with"));
  CHECK_FALSE(has(explained(bad), "(--reference)"));
}
