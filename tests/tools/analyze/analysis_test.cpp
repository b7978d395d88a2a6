#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include <algorithm>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/tools/analyze/analysis.hpp"
#include "npu_train/train/classifier.hpp"
#include "tools/scan/facts/operators.hpp"

using namespace npu_train;
using npu_train::testing::error_of, npu_train::testing::has;

namespace {

// A network that contains the difficulties of a migration.
struct Troubled : torch::nn::Module {
  torch::nn::Linear body{register_module("body", torch::nn::Linear(12, 40))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(40, 16))};
  bool throws = false;
  at::Tensor forward(const at::Tensor& x) {
    if (throws) throw std::runtime_error("no such weather");
    at::Tensor y = body(x);
    y = y + y.to(at::kDouble).cumsum(1).to(at::kFloat) * 1e-3;
    y = y * static_cast<double>(at::nonzero(y.detach() > 0).size(0) > 0);
    return head(at::relu(y));
  }
};

Batch small_batch() { return Batch(at::randn({4, 12}), at::zeros({4}, at::kLong)); }

const MigrationFinding* finding(const Analysis& analysis, const std::string& kind) {
  const auto found = std::find_if(analysis.findings.begin(), analysis.findings.end(), [&](const auto& f) { return f.kind == kind; });
  return found == analysis.findings.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("a model's step is looked up operator by operator") {
  const auto result = analyze(*classifier(std::make_shared<Troubled>()), small_batch());
  CHECK(
      std::any_of(result.findings.begin(), result.findings.end(), [](const auto& f) { return f.kind == "fp64" && f.subject == "cumsum"; }));
  REQUIRE(finding(result, "dynamic_shape") != nullptr);
  CHECK(finding(result, "dynamic_shape")->subject == "nonzero");
  CHECK(finding(result, "host_read") != nullptr);
  REQUIRE(finding(result, "alignment") != nullptr);
  CHECK(finding(result, "alignment")->subject == "body.weight");
  CHECK(result.verdict() == "feasible");
  double hours = 0;
  for (const auto& f : result.findings) hours += f.hours;
  CHECK(result.hours() == hours);
  CHECK(hours > 0);
  CHECK((result.parameter_dtypes == std::vector<std::pair<std::string, int64_t>>{{"fp32", 4}}));
  for (size_t i = 1; i < result.findings.size(); ++i)
    CHECK_FALSE((result.findings[i].severity == "blocks" && result.findings[i - 1].severity != "blocks"));
  const auto has_native = [&](const char* name, const char* phase) {
    return std::any_of(result.operators.begin(), result.operators.end(), [&](const auto& op) {
      return op.use.name == name && op.use.phase == phase && op.facts.support == OperatorSupport::Native;
    });
  };
  CHECK(has_native("addmm", "forward"));
  CHECK(has_native("mm", "backward"));
}

TEST_CASE("a plain model is ready, and memory and bf16 are findings of their own") {
  torch::nn::Sequential net(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Linear(32, 16));
  const auto task = classifier(net);
  const Batch batch(at::randn({4, 16}), at::zeros({4}, at::kLong));
  const auto ready = analyze(*task, batch);
  CHECK(ready.verdict() == "ready");
  for (const auto& p : task->parameters()) CHECK_FALSE(p.value.grad().defined());
  const auto large = analyze(*task, batch, {.hbm = 1000, .predicted_peak = 1001});
  CHECK(large.verdict() == "blocked");
  CHECK(finding(large, "memory") != nullptr);
  CHECK(finding(analyze(*task, batch, {.hbm = 1000, .predicted_peak = 1000}), "memory") == nullptr);
  const auto changed = analyze(*task, batch, {.hbm = 1000, .predicted_peak = 1001, .fits_with = "data.batch_size=2"});
  CHECK(changed.verdict() == "feasible");
  REQUIRE(finding(changed, "memory_change") != nullptr);
  CHECK(has(finding(changed, "memory_change")->detail, "it fits with data.batch_size=2"));
  CHECK(finding(changed, "memory_change")->hours < finding(large, "memory")->hours);
  torch::nn::Linear low(torch::nn::LinearOptions(16, 16));
  low->to(at::kBFloat16);
  const Batch low_batch(at::randn({4, 16}).to(at::kBFloat16), at::zeros({4}, at::kLong));
  CHECK(finding(analyze(*classifier(low), low_batch, {.soc = "910A"}), "bf16") != nullptr);
  CHECK(finding(analyze(*classifier(low), low_batch), "bf16") == nullptr);
}

TEST_CASE("memory beyond the card advises sharding, and each finding says who does the work") {
  torch::nn::Sequential net(torch::nn::Linear(16, 16));
  const auto task = classifier(net);
  const Batch batch(at::randn({4, 16}), at::zeros({4}, at::kLong));
  const auto sharded = analyze(*task, batch, {.hbm = 1000, .predicted_peak = 1001, .sharded_with = "trainer.strategy=zero2 on 8 ranks"});
  CHECK(sharded.verdict() == "feasible");
  REQUIRE(finding(sharded, "memory_sharding") != nullptr);
  CHECK(has(finding(sharded, "memory_sharding")->detail, "it fits with trainer.strategy=zero2 on 8 ranks"));
  CHECK(finding(sharded, "memory_sharding")->done_by == "tool");
  CHECK(finding(sharded, "memory") == nullptr);
  CHECK(has(finding(analyze(*task, batch, {.hbm = 1000, .predicted_peak = 1001}), "memory")->advice, "sharding"));
  CHECK(finding(sharded, "composite")->done_by == "automatic");
}

TEST_CASE("sums in fp16 and atomic additions are named") {
  const auto weight = at::randn({16, 16}).requires_grad_();
  ParameterSet parameters;
  parameters.add({.name = "body.weight", .value = weight});
  const auto index = at::zeros({4}, at::kLong);
  const auto step = [&](at::ScalarType dtype) {
    OperatorInventory inventory(parameters);
    inventory.phase_begin(Phase::Forward, 0, 0);
    weight.detach().to(dtype).sum(0);
    at::zeros({4, 16}, dtype).index_add_(0, index, at::ones({4, 16}, dtype));
    at::zeros({4, 16}, at::kLong).index_add_(0, index, at::ones({4, 16}, at::kLong));
    inventory.phase_end(Phase::Forward, 0, 0);
    return analyze(inventory, parameters, {.soc = "910B1"});
  };
  const auto half = step(at::kHalf), single = step(at::kFloat);
  std::vector<std::string> sums;
  for (const auto& f : half.findings)
    if (f.kind == "fp16_accumulation") sums.push_back(f.subject);
  std::sort(sums.begin(), sums.end());
  CHECK((sums == std::vector<std::string>{"index_add_"}));
  CHECK(has(finding(half, "fp16_accumulation")->advice, "about 1e-3: accumulate in fp32"));
  CHECK(finding(half, "fp16_accumulation")->done_by == "hand");
  CHECK(finding(single, "fp16_accumulation") == nullptr);
  for (const auto* result : {&half, &single}) {
    REQUIRE(finding(*result, "atomics") != nullptr);
    CHECK(finding(*result, "atomics")->subject == "index_add_");
    CHECK(finding(*result, "atomics")->calls == 1);  // integers do not count: their sums are equal in any order
  }
}

TEST_CASE("the table of unsupported operators has each operator once, with calls and places") {
  const auto weight = at::randn({16, 16}).requires_grad_();
  ParameterSet parameters;
  parameters.add({.name = "body.weight", .value = weight});
  OperatorInventory inventory(parameters);
  for (const auto phase : {Phase::Forward, Phase::Backward}) {
    inventory.phase_begin(phase, 0, 0);
    at::linalg_inv(weight.detach());
    at::linalg_inv(weight);
    at::relu(weight);
    inventory.phase_end(phase, 0, 0);
  }
  const auto result = analyze(inventory, parameters, {.soc = "910B1"});
  const auto table = parse_csv(unsupported_csv(result), "unsupported_operators.csv");
  CHECK((table.columns == std::vector<std::string>{"operator", "support", "count", "where", "action", "done_by", "hours"}));
  REQUIRE_MESSAGE(table.rows.size() == 1, unsupported_csv(result));
  const auto& row = table.rows[0];
  CHECK(has(row[0], "linalg_inv"));
  CHECK(row[1] == "cpu_fallback");
  CHECK(row[2] == "4");
  CHECK(row[3] == "forward in body; backward in body");
  CHECK(has(row[4], "each call copies to the host"));
  CHECK(row[5] == "hand");
  CHECK(row[6] == "4");
}

TEST_CASE("what the data decides, counters, views and the number of heads raise no alarm") {
  struct Plain : torch::nn::Module {
    torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3)))};
    torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(16))};
    torch::nn::Linear head{register_module("head", torch::nn::Linear(16, 10))};
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = norm(conv(x)).mean({2, 3}).view({-1, 3, 1, 16});  // 3 heads of 16
      return head(at::scaled_dot_product_attention(y, y, y).flatten(0, 2).narrow(0, 0, x.size(0)));
    }
  };
  const Batch batch(at::randn({3, 3, 8, 8}), at::zeros({3}, at::kLong));
  const auto result = analyze(*classifier(std::make_shared<Plain>()), batch);
  for (const char* kind : {"alignment", "int64", "fp64"}) {
    CAPTURE(kind);
    const auto* found = finding(result, kind);
    CAPTURE((found == nullptr ? "" : found->subject + ": " + found->detail));
    CHECK(found == nullptr);
  }
}

TEST_CASE("a series, composite operators and limits of the series are reported") {
  torch::nn::Sequential net(torch::nn::Linear(16, 16));
  const Batch batch(at::randn({4, 16}), at::zeros({4}, at::kLong));
  const auto series = analyze(*classifier(net), batch, {.soc = "910B"});
  REQUIRE(finding(series, "series") != nullptr);
  CHECK(has(finding(series, "series")->detail, "taken for a 910B1"));
  CHECK(finding(series, "bf16") == nullptr);
  CHECK(series.options.soc == "Ascend910B1");
  const auto exact = analyze(*classifier(net), batch, {.soc = "910B1"});
  CHECK(finding(exact, "series") == nullptr);
  REQUIRE(finding(exact, "composite") != nullptr);
  CHECK(finding(exact, "composite")->detail == "cross_entropy_loss: composed of _log_softmax, nll_loss_forward, which are in the tables");
  CHECK(exact.verdict() == "ready");
}

TEST_CASE("what an operator without a kernel of its own calls is looked up too") {
  const AscendOperators table("910B1", "2.11");
  const auto weight = at::randn({16, 16}).requires_grad_();
  ParameterSet parameters;
  parameters.add({.name = "weight", .value = weight});
  OperatorInventory inventory(parameters);
  inventory.phase_begin(Phase::Forward, 0, 0);
  at::conv1d(weight.unsqueeze(0), at::randn({4, 16, 3}));
  at::cosine_embedding_loss(weight, at::randn({16, 16}), at::ones({16}));
  inventory.phase_end(Phase::Forward, 0, 0);
  CHECK(inventory.parts().at("conv1d").count("convolution") == 1);
  const auto result = analyze(inventory, parameters, {.soc = "910B1"});
  const auto* composite = finding(result, "composite");
  REQUIRE(composite != nullptr);
  CHECK_MESSAGE(has(composite->detail, "conv1d, cosine_embedding_loss: composed of "), composite->detail);
  CHECK_MESSAGE(has(composite->detail, " convolution, "), composite->detail);
  CHECK_MESSAGE(!has(composite->detail, "mkldnn"), composite->detail);
}

TEST_CASE("the scan of sources and the table of operators agree on what is unsupported") {
  const AscendOperators table("910B1", "2.11");
  size_t seen = 0;
  for (const auto& row : npu_train::detail::facts_rows(facts::operators, "operators.tsv", 3)) {
    if (row[1] != "unsupported-api" || row[0].starts_with('.')) continue;
    const auto found = table.find("aten", std::string(row[0].substr(row[0].rfind('.') + 1)), "");
    CAPTURE(std::string(row[0]));
    CHECK_FALSE(has(found.limits, "a kernel is registered"));
    seen += found.support == OperatorSupport::Unsupported;
  }
  CHECK(seen > 5);
}

TEST_CASE("what the model throws, and chips that are not known, are errors") {
  auto net = std::make_shared<Troubled>();
  net->throws = true;
  CHECK(has(error_of([&] { analyze(*classifier(net), small_batch()); }).what(), "no such weather"));
  net->throws = false;
  CHECK(error_of([&] { analyze(*classifier(net), small_batch(), {.soc = "A100"}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("reports hold every operator and finding") {
  const auto result = analyze(*classifier(std::make_shared<Troubled>()), small_batch());
  const auto text = report_of(result).text(0, 0), html = to_html(result);
  const auto json = to_json(result);
  CHECK(json.at("operators", "t").items("t").size() == result.operators.size());
  CHECK(json.at("findings", "t").items("t").size() == result.findings.size());
  for (const auto& op : result.operators) {
    CHECK(has(text, op.use.full_name()));
    CHECK(has(html, op.use.full_name()));
  }
  CHECK(has(text, "feasible, with changes"));
  CHECK(has(report_of(result).text(0, 3), "(3 of "));
}
