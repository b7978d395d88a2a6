#include "testing.hpp"

#include "npu_train/tools/align/compare.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "tools/align/compared_runs.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using Cause = Divergence::Cause;

TEST_CASE("equal runs agree, value by value") {
  for (const auto* task : {"tensor", "statistics"}) {
    const auto result = with_fault({}, {.task = task});
    CHECK(result.agrees);
    CHECK_FALSE(result.first.found);
    CHECK(result.steps.size() == 2);
    CHECK(result.steps[0].compared > 30);
    CHECK((result.bytes > 0) == (std::string(task) == "tensor"));
  }
}

TEST_CASE("the layer that causes a difference is named, not later ones") {
  const auto transpose = [](CompareNet& net) {
    const at::NoGradGuard no_grad;
    net.second->weight.copy_(net.second->weight.t().clone());
  };
  for (const auto* task : {"tensor", "statistics"}) {
    CAPTURE(task);
    auto result = with_fault({.in_net = transpose, .facts = kElsewhere}, {.task = task});
    CHECK_FALSE(result.agrees);
    CHECK(result.first.layer == "second");
    CHECK(result.first.step == 0);
  }
  const auto result = with_fault({.in_net = transpose});
  CHECK((result.first.cause == Cause::Weights));
  CHECK(has(result.first.likely.at(0), "transposed"));

  const auto eps = with_fault({.in_net = [](CompareNet& net) { net.eps = 1e-2; }, .facts = kElsewhere});
  CHECK(eps.first.layer == "norm");
  CHECK((eps.first.cause == Cause::Layer));
  CHECK(has(eps.first.likely.at(0), "eps"));
  const auto bf16 = with_fault({.in_net = [](CompareNet& net) { net.bf16_second = true; }, .facts = kElsewhere});
  CHECK(bf16.first.layer == "second");
}

TEST_CASE("other data, dropped gradients and another learning rate have causes of their own") {
  const auto data = with_fault({.input = 1.01});
  CHECK((data.first.cause == Cause::Input));
  CHECK(data.first.layer == "first");
  const auto dropped = with_fault({.in_gradients = [](CompareNet& net) { net.norm->weight.mutable_grad().zero_(); }});
  CHECK((dropped.first.cause == Cause::Gradient));
  CHECK(dropped.first.layer == "norm");
  CHECK(has(dropped.first.likely.at(0), "zero on one side"));
  const auto lr = with_fault({.lr = 0.11});
  CHECK((lr.first.cause == Cause::Optimizer));
  CHECK(has(lr.first.likely.at(0), "learning rate"));
}

TEST_CASE("small gradients cannot hide behind the absolute tolerance") {
  Runs runs;
  const auto scaled = [](CompareNet& net) { net.first->weight.mutable_grad().mul_(1.05); };
  const auto result = compare_dumps(runs.run("a", {.in_gradients = scaled, .loss = 1e-5}), runs.run("b", {.loss = 1e-5}));
  CHECK_FALSE(result.agrees);
  CHECK(result.first.layer == "first");
  CHECK_FALSE(result.first.within_tolerance);
}

TEST_CASE("values that cannot be compared are listed with the reason, and the others are compared") {
  Runs runs;
  const auto a = runs.run("a"), b = runs.run("b");
  write_file_atomic(b + "/step0/rank0/dump_tensor_data/Module.norm.LayerNorm.forward.0.output.0.pt", "broken");
  auto result = compare_dumps(a, b);
  CHECK_FALSE(result.agrees);
  bool told = false;
  for (const auto& call : result.steps[0].calls)
    for (const auto& item : call.items)
      if (item.failed) told |= has(item.message, "Module.norm.LayerNorm.forward.0.output.0.pt");
  CHECK(told);
  CHECK(result.steps[0].compared > 30);
  std::filesystem::remove_all(b + "/step1");
  result = compare_dumps(a, b);
  CHECK(has(result.notes.at(0), "only A has step 1"));
  const auto only = runs.run("only", {}, {.task = "tensor", .list = {"first"}});
  result = compare_dumps(a, only);
  CHECK(result.agrees);
  CHECK(result.steps[0].one_sided > 0);
  CHECK(has(error_of([&] { compare_dumps(a, runs.run("none", {}, {.list = {"nothing"}, .data_mode = {"parameters_grad"}})); }).what(),
            "no pair of values"));
}

TEST_CASE("values that cannot be read do not agree") {
  Runs runs;
  const DumpOptions how{.task = "tensor", .summary = "crc32"};
  const auto a = runs.run("a", {}, how), b = runs.run("b", {}, how);
  CHECK(compare_dumps(a, b).agrees);
  std::filesystem::remove(b + "/step0/rank0/dump_tensor_data/Module.norm.LayerNorm.forward.0.output.0.pt");
  const auto result = compare_dumps(a, b);
  CHECK_FALSE(result.agrees);
  CHECK_FALSE(result.complete);
}

TEST_CASE("files that cannot be read are reported as such, and hide no divergence") {
  const std::string name = "Module.norm.LayerNorm.forward.0.output.0.pt";
  const auto transpose = [](CompareNet& net) {
    const at::NoGradGuard no_grad;
    net.second->weight.copy_(net.second->weight.t().clone());
  };
  for (const auto& facts : {std::map<std::string, std::string>{}, kElsewhere}) {
    Runs runs;
    const auto a = runs.run("a", {.facts = facts}), b = runs.run("b");
    const auto file = a + "/step0/rank0/dump_tensor_data/" + name;
    for (const bool missing : {false, true}) {
      CAPTURE(missing);
      write_file_atomic(file, "cut");
      if (missing) std::filesystem::remove(file);
      const auto result = compare_dumps(a, b);
      CAPTURE(to_text(result));
      CHECK_FALSE(result.agrees);
      CHECK((result.first.cause == Cause::Unreadable));
      CHECK(has(result.first.sentence, "the values of 1 pair of step 0 cannot be read"));
      CHECK(has(result.first.sentence, name));
      CHECK(has(to_text(result), "Nothing is proven: 1 value cannot be read; the rest agrees"));
      CHECK_FALSE(has(to_text(result), "error grows"));
    }
    const auto fault = runs.run("fault", {.in_net = transpose, .facts = facts});
    std::filesystem::remove(fault + "/step0/rank0/dump_tensor_data/" + name);
    const auto found = compare_dumps(fault, b);
    CHECK(found.first.layer == "second");
    CHECK(has(to_text(found), "; 1 value cannot be read"));
  }
}

TEST_CASE("a tolerance selects layers by their path, and one that matches no layer is reported") {
  const auto other = [](CompareNet& net) { net.eps = 1e-3; };
  const auto notes = [&](const char* pattern, const char* mean) {
    const auto result = with_fault({.in_net = other}, {.task = "tensor"}, {.layer_tolerance = {{pattern, {10, 10}}}});
    return result.steps.at(0).failed ==
                   with_fault({.in_net = other}, {.task = "tensor"}, {.layer_tolerance = {{mean, {10, 10}}}}).steps[0].failed
               ? join(result.notes)
               : "another number of failures";
  };
  CHECK(notes("norm*", "Module.norm.") == "");
  CHECK(notes("secnd.*", "none") == "--tolerance secnd.* matches no compared layer or call");
  CHECK(with_fault({}, {.task = "tensor"}, {.layers = "seco*"}).steps[0].compared > 0);
  Runs runs;
  const auto listed = runs.run("listed", {}, {.list = {"seco*"}});
  const auto calls = compare_dumps(listed, listed).steps.at(0).calls;
  CHECK(std::any_of(calls.begin(), calls.end(), [](const auto& call) { return call.layer == "second"; }));
}

TEST_CASE("a clipped step is named by fact or by what the optimizer keeps, and found_inf only where a loss is scaled") {
  Runs runs;
  const Fault clipped{.clip = 0.25, .momentum = 0.9}, plain{.momentum = 0.9};
  const auto b = runs.run("b", plain);
  const auto by_state = compare_dumps(runs.run("a", clipped), b);
  CAPTURE(explained(by_state));
  CHECK((by_state.first.cause == Cause::Optimizer));
  CHECK(has(explained(by_state), "A's state are 0.25 times B's"));
  CHECK_FALSE(has(explained(by_state), "found_inf"));
  const auto by_fact = compare_dumps(runs.run("c", {.clip = 0.25, .facts = {{"gradient_clip", "norm 0.01"}}}),
                                     runs.run("d", {.facts = {{"gradient_clip", "none"}}}));
  CHECK(has(explained(by_fact), "different gradient clipping: norm 0.01 and none"));
  CHECK_FALSE(has(explained(by_fact), "found_inf"));
  const auto unknown = compare_dumps(runs.run("e", {.clip = 0.25}), runs.run("f"));
  CHECK(has(explained(unknown), "clips"));
  CHECK_FALSE(has(explained(unknown), "found_inf"));
}

TEST_CASE("where runs agree nothing is called likely") {
  const auto nudge = [](CompareNet& net) {
    const at::NoGradGuard no_grad;
    net.second->weight.mul_(1 + 1e-6);
  };
  Runs runs;
  const std::map<std::string, std::string> facts = {{"device", "cpu"}, {"precision", "32-true"}};  // equal environment: every bit counts
  const auto result = compare_dumps(runs.run("a", {.in_net = nudge, .facts = facts}), runs.run("b", {.facts = facts}), {.rtol = 1e-2});
  CHECK(result.agrees);
  CHECK(result.first.within_tolerance);
  CHECK(result.first.likely.empty());
  CHECK(result.first.advice.empty());
}

TEST_CASE("a dump.json that ends before its first call is truncated, not of another network") {
  Runs runs;
  const auto a = runs.run("a"), b = runs.run("b");
  for (const char* step : {"step0", "step1"}) {
    const auto path = a + "/" + step + "/rank0/dump.json";
    write_file_atomic(path, read_file(path, 1 << 24).substr(0, 10));
  }
  const std::string text = error_of([&] { compare_dumps(a, b); }).what();
  CHECK(has(text, "is truncated"));
  CHECK_FALSE(has(text, "--mapping"));
}

TEST_CASE("a part that agrees is not called complete") {
  const auto result = with_fault({}, {.task = "tensor"}, {.sample = 0.5, .seed = 1});
  CHECK(result.sampled);
  CHECK(result.steps[0].skipped > 0);
  CHECK(with_fault({}, {.task = "tensor"}, {.layers = "last"}).sampled);
  CHECK(with_fault({}, {.task = "tensor"}, {.layers = "sensitive"}).steps[0].compared > 0);
}

TEST_CASE("a mapping and order pair other names") {
  Runs runs;
  const auto a = runs.run("a"), b = runs.run("b");
  const auto path = std::filesystem::path(b) / "step0/rank0/dump.json";
  auto text = read_file(path, 1 << 24);
  const std::string from = "second.", to = "blocks1.";  // also renames the optimizer's parameters and state
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  write_file_atomic(path, text);
  std::filesystem::remove_all(a + "/step1");
  const auto strict = compare_dumps(a, b, {.fuzzy = false});
  CHECK(strict.steps[0].one_sided >= 4);
  for (const auto& how : {CompareOptions{}, CompareOptions{.fuzzy = false, .mapping = {{"second", "blocks1"}}}}) {
    const auto result = compare_dumps(a, b, how);
    CHECK(result.steps[0].one_sided == 0);
  }
}

TEST_CASE("named values: the first one that differs, in msprobe's form too") {
  const TempDir dir;
  // msprobe writes the gradient next to its value.
  const auto dump = [&](const std::string& name, double first, double second, double gradient) {
    const auto folder = dir / name / "step0" / "rank0";
    make_folder(folder);
    const auto entry = [](const char* key, double max) { return std::string("\"") + key + "\": " + CraftedDump::tensor("[4]", max); };
    write_file_atomic(folder / "debug.json", R"({"task": "statistics", "level": "debug", "data": {)" + entry("scores.0.debug", first) +
                                                 ", " + entry("scores_grad.0.debug", gradient) + R"(, "pooled.0.debug": [)" +
                                                 CraftedDump::tensor("[4]", second) + R"(, {"type": "int", "value": 3}]}})");
    return dir / name;
  };
  const auto b = dump("b", 1, 1, 1);
  CHECK(compare_dumps(dump("same", 1, 1, 1), b).agrees);
  const auto later = compare_dumps(dump("later", 1, 1.5, 1.5), b);
  CHECK((later.first.layer == "pooled" && later.first.direction == "forward"));
  const auto gradient = compare_dumps(dump("gradient", 1, 1, 1.5), b);
  CHECK((gradient.first.layer == "scores" && gradient.first.direction == "backward"));
  CHECK(compare_dumps(dir / "later/step0/rank0/debug.json", b).first.found);
}

TEST_CASE("steps that were chosen are a part") {
  CHECK(with_fault({}, {.task = "tensor"}, {.steps = {0}}).sampled);
  CHECK_FALSE(with_fault({}, {.task = "tensor"}, {.steps = {0, 1}}).sampled);
}
