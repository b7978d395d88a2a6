#include "testing.hpp"

#include "npu_train/align/compare_report.hpp"
#include "npu_train/report/csv.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

DumpItem item(const std::string& name, double max) {
  DumpItem out{.name = name, .side = "output", .dtype = "torch.float32", .shape = {2, 3}};
  out.max = max, out.min = -1, out.mean = 0.5, out.norm = 2;
  return out;
}

// Two values of one layer: one that agrees, one that does not; and one that only A has.
DumpComparison sample(ItemComparison::Kind kind, const std::string& layer = "conv1") {
  const auto name = "Module." + layer + ".Conv2d.forward.0";
  CallComparison call{.a = name, .b = name, .layer = layer, .type = "Conv2d", .direction = "forward"};
  for (const double max : {1.0, 4.0}) {
    ItemComparison value{.a = name + ".output." + std::to_string(call.items.size()), .b = name + ".output.0", .side = "output"};
    value.item_a = item(value.a, max);
    value.item_b = item(value.b, 1.0);
    value.kind = kind;
    value.metrics.cosine = 0.5;
    value.metrics.max_abs = max - 1;
    value.error = max - 1;
    value.failed = max > 1;
    if (value.failed) value.message = "differs by 3, allowed 0.001";
    call.items.push_back(value);
  }
  call.failed = true;
  CallComparison only{.a = "Module.extra.Linear.forward.0", .b = "", .layer = "extra", .type = "Linear", .direction = "forward"};
  ItemComparison lone{.a = only.a, .b = "", .side = ""};
  lone.kind = ItemComparison::Kind::OneSided;
  only.items.push_back(lone);
  StepComparison step{.step = 3, .rank = "rank0", .calls = {call, only}};
  step.compared = 2, step.failed = 1, step.one_sided = 1;
  DumpComparison out;
  out.a = "left", out.b = "right";
  out.steps = {step};
  out.agrees = false;
  out.first.found = true;
  out.first.step = 3;
  out.first.call = name;
  out.first.layer = layer;
  out.first.sentence = "conv1 began it";
  out.first.likely = {"rounding"};
  out.first.advice = {"fp32"};
  return out;
}

}  // namespace

TEST_CASE("the text ends with where and whether, worst rows first") {
  const auto text = to_text(sample(ItemComparison::Kind::Tensor));
  CHECK(has(text, "first divergence: conv1 began it"));
  CHECK(has(text, "likely: rounding"));
  CHECK(text.find("output.1") < text.find("extra"));
  CHECK_FALSE(has(text, "output.0 "));  // equal values need no row
  CHECK(text.ends_with("the runs differ, 1 beyond tolerance\n"));
  auto part = sample(ItemComparison::Kind::Tensor);
  part.sampled = true;
  part.steps[0].failed = 0;
  CHECK(has(to_text(part), "the part that was read agrees; the rest was not looked at"));
}

TEST_CASE("the CSV has msprobe's columns for each kind of dump") {
  for (const auto& [kind, column, rule] : {std::tuple(ItemComparison::Kind::Tensor, "Cosine", "Accuracy Reached or Not"),
                                           std::tuple(ItemComparison::Kind::Statistics, "L2norm diff", "Result"),
                                           std::tuple(ItemComparison::Kind::Checksum, "NPU MD5", "Result")}) {
    const auto table = parse_csv(to_csv(sample(kind)), "compare.csv");
    CHECK(table.has("NPU Name"));
    CHECK(table.has("Bench Tensor Shape"));
    CHECK(table.has(column));
    CHECK(table.rows.size() == 3);
    CHECK(table.rows[0][table.index("NPU Name")] == "Module.conv1.Conv2d.forward.0.output.0");
    CHECK(table.rows[2][table.index("Verdict")] == "A only");
    CHECK_FALSE(table.rows[1][table.index(rule)].empty());
  }
  const auto table = parse_csv(to_csv(sample(ItemComparison::Kind::Tensor)), "compare.csv");
  CHECK(table.rows[1][table.index("Accuracy Reached or Not")] == "No");  // cosine below 0.9
}

TEST_CASE("the JSON holds everything, and reads back") {
  const auto json = parse_json(to_json(sample(ItemComparison::Kind::Tensor)).dump(), "json");
  CHECK_FALSE(json.at("agrees", "j").boolean("j"));
  CHECK(json.at("first_divergence", "j").at("layer", "j").text("j") == "conv1");
  const auto& call = json.at("steps", "j").items("j").at(0).at("calls", "j").items("j").at(0);
  CHECK(call.at("items", "j").items("j").at(1).at("metrics", "j").at("max_abs", "j").number("j") == 3);
}

TEST_CASE("hostile names stay text on the page and on the terminal") {
  const std::string evil = "</script><img src=x onerror=alert(1)>\x1b[31m";
  const auto comparison = sample(ItemComparison::Kind::Tensor, evil);
  const auto page = to_html(comparison);
  CHECK_FALSE(has(page, "<img src=x"));
  CHECK(has(page, "&lt;img src=x"));
}
