#include "testing.hpp"

#include "npu_train/train/overflow_report.hpp"

#include <algorithm>

#include <ATen/Context.h>
#include <torch/nn.h>

#include "npu_train/base/state.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/io/json.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// In its scope, torch::empty returns NaN, which memory may also contain by chance. Deterministic algorithms fill the memory that they
// reserve with NaN.
struct ReservedMemoryIsNan {
  ReservedMemoryIsNan() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }
  ~ReservedMemoryIsNan() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

// A layer that divides by its input in the backward pass without changing the forward: 1 + (sqrt(x^2) - |x|) has an infinite slope at 0.
struct ProneImpl : torch::nn::Module {
  explicit ProneImpl(const std::string& where) : where(where) {
    first = register_module("first", torch::nn::Linear(6, 16));
    middle = register_module("middle", torch::nn::Linear(16, 16));
    head = register_module("head", torch::nn::Linear(16, 4));
    gain = register_parameter("gain", torch::ones({16}));
  }
  at::Tensor forward(at::Tensor x) {
    at::Tensor h = torch::relu(first(x));
    if (where == "forward") h = h * 100;
    h = middle(h);
    if (where == "reserved") {
      const ReservedMemoryIsNan left_over;
      auto reserved = torch::empty({16, 16});
      CHECK(reserved.isnan().all().item<bool>());
      h = h + reserved.zero_().select(1, 0).unsqueeze(1);
    }
    if (where == "parameter") h = h * (1 + torch::sqrt(gain - 1));  // infinite slope of sqrt at 0
    if (where == "backward") h = h + torch::sqrt(torch::relu(h - 1e4)) * 0.1;
    return head(torch::dropout(h, 0.1, is_training()));
  }
  std::string where;
  torch::nn::Linear first{nullptr}, middle{nullptr}, head{nullptr};
  at::Tensor gain;
};
TORCH_MODULE(Prone);

struct Case {
  explicit Case(const std::string& where, double scale = 1024) : net(where) {
    at::set_num_threads(1);
    torch::manual_seed(4);
    net = Prone(where);
    task = classifier(net);
    task->set_training(true);
    precision = make_precision({.mode = "16-mixed", .grad_scaler = {.init_scale = scale, .max_scale = 1e12}}, Device{});
    precision->prepare(task->parameters());
  }
  OverflowReport explain(const std::vector<Batch>& window) {
    const auto before = digest(task->parameters());
    const at::Tensor next = RandomTaste();
    const auto report = explain_overflow(
        *task, *precision, {.window = &window, .random = RandomState({c10::Device(c10::kCPU)}), .restore_buffers = [] {}, .attempt = 7});
    CHECK(digest(task->parameters()) == before);
    CHECK(at::equal(RandomTaste(), next));
    CHECK(task->parameters().grads().empty());
    return report;
  }
  // Returns the next numbers of the generator without advancing it.
  static at::Tensor RandomTaste() {
    const RandomState state({c10::Device(c10::kCPU)});
    const RandomState::Scope same(state);
    return torch::rand({3});
  }

  Prone net{nullptr};
  std::shared_ptr<Task> task;
  std::unique_ptr<Precision> precision;
};

Batch batch_of(double scale = 1) {
  torch::manual_seed(5);
  Batch b(torch::randn({16, 6}) * scale, torch::randint(4, {16}));
  for (int64_t i = 0; i < 16; ++i) b.ids.push_back(100 + i);
  return b;
}

std::string advice_of(const OverflowReport& r) {
  std::string out;
  for (const auto& a : r.advice) out += a + "\n";
  return out;
}

}  // namespace

TEST_CASE("an overflow in the forward names the layer, its range in fp32, and the block to keep in fp32") {
  Case c("forward");
  const auto r = c.explain({batch_of(), batch_of(1e5)});
  CHECK(r.source.phase == "forward");
  CHECK(r.source.layer == "first");
  CHECK(r.micro_batch == 1);
  REQUIRE(r.layers.size() == 3);
  CHECK(r.layers[0].layer == "first");
  CHECK_FALSE(std::isfinite(r.layers[0].largest));
  CHECK(r.layers[0].largest_fp32 > 65504);
  CHECK(std::isfinite(r.layers[0].largest_fp32));
  CHECK(has(advice_of(r), "the block of first in fp32: amp.fp32_modules"));
  CHECK(has(advice_of(r), "bf16-mixed"));
  CHECK(r.samples.empty());  // empty, because most of them overflow
}

TEST_CASE("an operator without parameters is named by the layer before it") {
  Case c("forward");
  auto b = batch_of(1500);
  const auto r = c.explain({b});
  CHECK(r.source.phase == "forward");
  CHECK(r.source.op == "mul");
  CHECK(r.source.layer == "after first");
}

TEST_CASE("a loss scale that is too large shows in the backward alone") {
  Case c("", 1e9);
  const auto r = c.explain({batch_of()});
  CHECK(r.source.phase == "backward");
  CHECK(r.parameters.size() >= 4);
  CHECK(r.parameters_in_all == 7);
  CHECK(has(advice_of(r), "grad_scaler.max_scale"));
  for (const auto& l : r.layers) CHECK(std::isfinite(l.largest));
}

TEST_CASE("the gradient of a single parameter") {
  Case c("parameter");
  const auto r = c.explain({batch_of()});
  CHECK(r.source.phase == "backward");
  CHECK((r.parameters == std::vector<std::string>{"gain"}));
  CHECK(has(advice_of(r), "only the gradient of gain"));
}

TEST_CASE("one bad sample is found by its index in the data") {
  Case c("");
  auto b = batch_of();
  b.input()[5][2] = 1e7;
  const auto r = c.explain({b});
  CHECK(r.source.phase == "forward");
  CHECK((r.samples == std::vector<int64_t>{105}));
  CHECK(has(advice_of(r), "look at sample 105"));
}

TEST_CASE("without an overflow the report states that") {
  Case c("");
  const auto r = c.explain({batch_of()});
  CHECK(r.source.phase == "unknown");
  CHECK(has(advice_of(r), "another rank"));
}

TEST_CASE("the content of memory that was only reserved is not an overflow") {
  Case c("reserved");
  const auto r = c.explain({batch_of()});
  CHECK(r.source.phase == "unknown");
}

TEST_CASE("text and JSON hold the same") {
  Case c("forward");
  auto r = c.explain({batch_of(1e5)});
  r.skip_streak = 3;
  CHECK(has(r.str(), "overflow at attempt 7, 3 in a row; 16-mixed, loss scale 1.02e+03"));
  CHECK(has(r.str(), "source: forward"));
  TempDir dir;
  write_overflow_report(r, dir.path().string());
  const auto json = load_json(dir / "overflow_report.json");
  CHECK(json.at("source", "").at("layer", "").text("") == "first");
  CHECK(json.at("layers", "").items("").size() == 3);
  CHECK(json.at("layers", "").items("")[0].at("largest", "").number("") != 0);
  CHECK(std::filesystem::exists(dir / "overflow_report.txt"));
}

TEST_CASE("the step explains the third skip in a row, before the first taken one the sixteenth") {
  for (const bool taken_before : {false, true}) {
    Toy toy("16-mixed");
    std::vector<OverflowReport> reports;
    auto step = toy.step({.on_overflow = [&](const OverflowReport& r) { reports.push_back(r); }});
    auto huge = toy_batch(8, 6);
    huge.set("input", huge.input() * 1e6);
    if (taken_before) step.run({toy_batch()});
    const auto before = weights(toy);
    for (int i = 0; i < 17; ++i) CHECK_FALSE(step.run({huge}).taken);
    CHECK(weights(toy) == before);
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].skip_streak == (taken_before ? 3 : 16));
    CHECK(reports[0].source.phase == "forward");
    CHECK(reports[0].source.layer == "first");
  }
}

TEST_CASE("detect_anomaly explains the first skip, and gradients that are not finite where no step is skipped") {
  std::vector<OverflowReport> reports;
  const StepOptions options{.on_overflow = [&](const OverflowReport& r) { reports.push_back(r); }, .detect_anomaly = true};
  Toy fp16("16-mixed");
  auto huge = toy_batch(8, 6);
  huge.set("input", huge.input() * 1e6);
  fp16.step(options).run({huge});
  REQUIRE(reports.size() == 1);
  Toy fp32;
  auto bad = toy_batch(8, 6);
  bad.input()[3][1] = kNaN;
  auto step = fp32.step(options);
  step.run({toy_batch()});
  CHECK(reports.size() == 1);
  step.run({bad});
  REQUIRE(reports.size() == 2);
  CHECK(reports[1].precision == "32-true");
}

TEST_CASE("looking for anomalies changes nothing: the weights after a step are those without") {
  for (const char* mode : {"32-true", "bf16-mixed", "16-mixed", "bf16-true"}) {
    const auto bits = [&](bool detects) {
      Toy toy(mode, "sgd", 0.3);
      int64_t reports = 0;
      auto step = toy.step({.on_overflow = [&](const OverflowReport&) { ++reports; }, .detect_anomaly = detects});
      auto bad = toy_batch();
      bad.input()[3][1] = kNaN;
      step.run({toy_batch()});
      step.run({bad, toy_batch(8, 9)});
      CHECK(reports == (detects ? 1 : 0));
      std::map<std::string, uint64_t> out;
      for (const auto& p : toy.optimizer->parameters()) out[p.name] = digest(p.value);
      for (const auto& [name, t] : toy.task->buffers()) out[name] = digest(t);
      out["random"] = digest(at::rand({4}));
      return out;
    };
    CAPTURE(mode);
    CHECK((bits(true) == bits(false)));
  }
}

TEST_CASE("parameters that are not named are counted") {
  for (const size_t n : {0, 1, 2, 5, 6, 30}) {
    OverflowReport r;
    r.parameters_in_all = 30;
    for (size_t i = 0; i < n; ++i) r.parameters.push_back("<" + std::to_string(i) + ">");
    const auto text = r.str();
    const auto begin = text.find("not finite: " + std::to_string(n) + " of 30");
    REQUIRE(begin != std::string::npos);
    const auto line = text.substr(begin, text.find('\n', begin) - begin);
    const auto more = line.find(", and ");
    CHECK(std::count(line.begin(), line.end(), '<') == static_cast<long>(std::min<size_t>(n, 5)));
    CHECK((more == std::string::npos ? 5 : 5 + std::stoul(line.substr(more + 6))) == std::max<size_t>(n, 5));
  }
}
