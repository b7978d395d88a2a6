#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <algorithm>

#include "npu_train/tools/validate/precision_validator.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int64_t kBatch = 8;

/// Options of a network with a convolution and two linear layers, which does one thing wrong if an option requests it.
struct FaultyOptions {
  std::string fault;
  static const ConfigTable<FaultyOptions>& config_table() {
    static const auto table = ConfigTable<FaultyOptions>("faulty").field("fault", &FaultyOptions::fault, "what goes wrong");
    return table;
  }
};

/// Returns its input, with a gradient that is a little too large.
struct WrongBackward : torch::autograd::Function<WrongBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list gradients) {
    return {gradients[0] * 1.01};
  }
};

struct FaultyImpl : torch::nn::Module {
  explicit FaultyImpl(std::string wrong)
      : fault(std::move(wrong)),
        conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).stride(4)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(8))),
        hidden(register_module("hidden", torch::nn::Linear(8 * 8 * 8, 16))),
        head(register_module("head", torch::nn::Linear(16, 10))) {}

  at::Tensor forward(const at::Tensor& x) {
    const bool is_large = x.abs().max().item<float>() > 1000, is_zero = x.abs().max().item<float>() == 0;
    auto y = conv(fault == "large" && is_large ? x.clamp(-1000, 1000) : x);
    if (fault == "layer") y = y * 1.01;  // after the convolution, so the next layer is the first to show it
    if (fault == "gradient") y = WrongBackward::apply(y);
    y = at::relu(norm(fault == "statistics" && is_training() ? y * 1.01 : y)).flatten(1);
    y = head(at::relu(hidden(y)));
    if (fault == "one" && x.size(0) == 1) y = y * 1.01;
    if (fault == "partial" && x.size(0) > 1 && x.size(0) < kBatch) y = y * 1.01;
    if (fault == "zeros" && is_zero) y = y + 0.01;
    if (fault == "nan" && is_large) y = y / 0.0;
    return y;
  }

  std::string fault;
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear hidden, head;
};
TORCH_MODULE(Faulty);

Parts with_faults() {
  auto parts = builtin_parts();
  parts.models.add<FaultyOptions>("faulty", "a network with a fault",
                                  [](const FaultyOptions& options) { return as_model(Faulty(options.fault)); });
  return parts;
}

/// Returns a run with 28 images to validate on: three full batches and half a batch.
RunConfig small(const std::string& model, const std::string& device = "cpu", const std::string& precision = "32-true") {
  RunConfig c{.device = device, .precision = precision};
  c.model.name = model;
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 28}, {"batch_size", kBatch}, {"num_workers", "0"}}};
  c.optimizer.options = {{"lr", 0.05}, {"momentum", 0.9}};
  c.trainer = {.max_epochs = 3, .threads = 1};
  c.output.dir = "";
  if (model == "resnet18") c.model.options = {{"stem", "imagenet"}};
  if (model == "vit_tiny_cifar10") {
    c.model.options = {{"depth", 2}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}, {"dropout", 0.1}};
    c.optimizer = {.name = "adamw", .options = {{"lr", 0.001}}};
  }
  return c;
}

RunConfig faulty(const std::string& fault) {
  auto c = small("faulty");
  c.model.options = {{"fault", fault.c_str()}};
  return c;
}

std::vector<std::string> failed(const ValidationReport& report) {
  std::vector<std::string> out;
  for (const auto& c : report.checks)
    if (!c.passed) out.push_back(c.name);
  return out;
}

const ValidationCheck& row(const ValidationReport& report, const std::string& name) {
  const auto found = std::find_if(report.checks.begin(), report.checks.end(), [&](const ValidationCheck& c) { return c.name == name; });
  if (found == report.checks.end()) FAIL("no check " << name);
  return *found;
}

ValidationReport against_a_sound_one(const std::string& fault, PrecisionValidatorOptions options = {}) {
  return PrecisionValidator(std::move(options)).validate(faulty(fault), faulty(""), with_faults());
}

}  // namespace

TEST_CASE("sound devices and precisions agree, in every check") {
  struct Pair {
    std::string model, device, precision, against;
  };
  const auto check = [](const Pair& pair) {
    auto judged = small(pair.model, pair.device, pair.precision);
    auto reference = small(pair.model, "cpu", pair.against);
    judged.cpu_low_precision = reference.cpu_low_precision = "emulated";
    const auto report = PrecisionValidator({.samples = 20}).validate(judged, reference);
    CHECK_MESSAGE(report.all_passed, to_text(report));
    CHECK(report.pass_rate == 1);
    CHECK(report.samples == 20);
    CHECK(report.layers.size() > 5);
    CHECK(report.gradients.size() > 10);
    CHECK(report.judged_losses.size() == 6);
    CHECK(row(report, "optimizer step").note.empty());  // a step was taken, and moved the weights
    return report;
  };
  for (const std::string model : {"resnet18", "vit_tiny_cifar10"}) {
    CAPTURE(model);
    check({model, "sim_npu", "32-true", "32-true"});
    check({model, "cpu", "bf16-mixed", "32-true"});
    check({model, "cpu", "16-mixed", "32-true"});
    check({model, "sim_npu", "16-mixed", "16-mixed"});
  }
  const auto report = check({"vit_tiny_cifar10", "sim_npu", "32-true", "32-true"});
  CHECK(report.max_max_diff == 0);  // the simulator runs the host's kernels with the same masks
}

TEST_CASE("masters, no masters and averages") {
  for (const std::string precision : {"bf16-true", "16-true", "O3"}) {
    auto judged = small("vit_tiny_cifar10", "cpu", precision), reference = small("vit_tiny_cifar10");
    judged.cpu_low_precision = "emulated";
    judged.average.enabled = reference.average.enabled = true;
    const auto report = PrecisionValidator({.samples = 8}).validate(judged, reference);
    CHECK_MESSAGE(report.all_passed, to_text(report));
  }
}

TEST_CASE("emulated and native low precision agree") {
  auto judged = small("vit_tiny_cifar10", "cpu", "bf16-mixed"), reference = judged;
  judged.cpu_low_precision = "emulated";
  reference.cpu_low_precision = "native";
  const auto report = PrecisionValidator({.samples = 8, .train_steps = 2}).validate(judged, reference);
  CHECK_MESSAGE(report.all_passed, to_text(report));
  CHECK(report.judged.emulated);
  CHECK_FALSE(report.reference.emulated);
  CHECK(report.max_max_diff > 0);
}

TEST_CASE("the network of the tests below agrees in every check, without a fault") {
  auto judged = faulty(""), reference = judged;
  judged.precision = "bf16-mixed";
  judged.cpu_low_precision = "emulated";
  const auto report = PrecisionValidator().validate(judged, reference, with_faults());
  CHECK_MESSAGE(report.all_passed, to_text(report));
  CHECK(has(row(report, "last partial batch").note, "4 samples of 8"));
  CHECK(has(report.tolerance_source, "bf16"));
}

TEST_CASE("a layer that is wrong by a hundredth is named") {
  const auto report = against_a_sound_one("layer");
  CHECK_FALSE(report.all_passed);
  CHECK(report.pass_rate == 0);
  REQUIRE(report.first_flagged() != nullptr);
  CHECK(report.first_flagged()->name == "hidden");
  CHECK(report.layers.front().name == "conv");
  CHECK_FALSE(report.layers.front().flagged);
  CHECK((report.layers.front().shape == std::vector<int64_t>{1, 8, 8, 8}));
  CHECK(report.layers.front().max_diff == 0);
  CHECK(report.first_flagged()->max_diff > 1e-4);
  CHECK(row(report, "layers").worst == "hidden");
  CHECK(has(to_text(report), "the first layer that differs is hidden"));
}

TEST_CASE("each kind of fault shows in the check that is made for it, and in no other that it does not reach") {
  using Names = std::vector<std::string>;
  CHECK((failed(against_a_sound_one("zeros")) == Names{"zeros"}));
  CHECK((failed(against_a_sound_one("large")) == Names{"large values"}));
  CHECK((failed(against_a_sound_one("nan")) == Names{"large values"}));
  CHECK((failed(against_a_sound_one("partial")) == Names{"outputs", "last partial batch"}));
  CHECK((failed(against_a_sound_one("one", {.layers_every = 0})) == Names{"batch of 1"}));
  const auto gradient = against_a_sound_one("gradient");
  const auto names = failed(gradient);
  REQUIRE(!names.empty());
  CHECK(names.front() == "gradients");
  CHECK(std::find(names.begin(), names.end(), "optimizer step") == names.end());  // it used the reference's gradients
  // the bias's gradient is 0 except for rounding, since the normalisation removes it
  for (const auto& g : gradient.gradients) CHECK_MESSAGE(g.flagged == (g.name == "conv.weight"), g.name);
  const auto statistics = against_a_sound_one("statistics", {.train_steps = 0});
  CHECK_FALSE(row(statistics, "running statistics").passed);
  CHECK(row(statistics, "outputs").passed);
}

TEST_CASE("an optimizer that steps a little further is found") {
  auto judged = faulty("");
  judged.optimizer.options.set("lr", ConfigNode(0.0505));
  const auto report = PrecisionValidator({.train_steps = 0}).validate(judged, faulty(""), with_faults());
  CHECK((failed(report) == std::vector<std::string>{"optimizer step"}));
}

TEST_CASE("fp16 may overflow on large inputs, and a device that computes in it may not be alone in that") {
  auto judged = faulty("");
  judged.precision = "16-mixed";
  judged.cpu_low_precision = "emulated";
  const auto report = PrecisionValidator({.large = 1e6}).validate(judged, faulty(""), with_faults());
  CHECK_MESSAGE(report.all_passed, to_text(report));
  CHECK(has(row(report, "large values").note, "the judged side overflows, which fp16 may"));
  auto reference = judged;
  judged.model.options = {{"fault", "nan"}};
  const auto both = PrecisionValidator({.large = 1e6}).validate(judged, reference, with_faults());
  CHECK(has(row(both, "large values").note, "both overflow"));
  const auto alone = PrecisionValidator({.large = 1e3}).validate(judged, reference, with_faults());
  CHECK((failed(alone) == std::vector<std::string>{"large values"}));
}

TEST_CASE("given tolerances are kept: without noise allowed, equal mathematics in another order is a difference") {
  auto judged = small("resnet18"), reference = judged;
  judged.model.options.set("fused_kernels", ConfigNode("false"));
  PrecisionValidatorOptions strict{.samples = 8, .rtol = 0, .atol = 0, .tolerance_by_dtype = false, .noise = 0, .train_steps = 0};
  const auto report = PrecisionValidator(strict).validate(judged, reference);
  CHECK_FALSE(report.all_passed);
  CHECK(report.noise == 0);
  CHECK(PrecisionValidator({.samples = 8, .train_steps = 0}).validate(judged, reference).all_passed);
}

TEST_CASE("the report as JSON") {
  const auto json = to_json(against_a_sound_one("layer", {.samples = 12, .layers_every = 5, .layer_types = {"Linear"}}));
  const auto again = parse_json(json.dump(), "the report");
  for (const char* key : {"avg_max_diff", "avg_mean_diff", "max_max_diff", "pass_rate"}) CHECK(again.at(key, "json").number("json") >= 0);
  CHECK_FALSE(again.at("all_passed", "json").boolean("json"));
  CHECK(again.at("samples", "json").integer("json") == 12);
  CHECK(again.at("judged", "json").at("device", "json").text("json") == "cpu");
  const auto& layers = again.at("layers", "json").items("json");
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].at("type", "json").text("json") == "Linear");
  CHECK(layers[0].at("shape", "json").items("json").size() == 2);
  CHECK(layers[0].at("max_diff", "json").number("json") >= layers[0].at("mean_diff", "json").number("json"));
  CHECK(again.at("first_flagged", "json").text("json") == "hidden");
}

TEST_CASE("what makes no sense is refused") {
  const auto config = small("vit_tiny_cifar10");
  const auto validate = [&](const RunConfig& a, const RunConfig& b, PrecisionValidatorOptions options = {}) {
    return error_of([&] { PrecisionValidator(options).validate(a, b); });
  };
  CHECK(has(validate(config, config).what(), "there is nothing to compare"));
  auto other = config;
  other.device = "cpu";
  other.precision = "O0";
  CHECK(has(validate(other, config).what(), "there is nothing to compare"));  // another name of the same precision
  other.precision = "bf16-mixed";
  CHECK(has(validate(other, config, {.layer_types = {"Lineer"}}).what(), "Linear"));
  other.model.options.set("depth", ConfigNode(1));
  CHECK((validate(other, config).kind() == ErrorKind::Checkpoint));
  other = config;
  other.average.enabled = true;
  CHECK(has(validate(other, config).what(), "moving average"));
  CHECK((error_of([] { PrecisionValidator({.samples = 0}); }).kind() == ErrorKind::Usage));
  CHECK((error_of([] { PrecisionValidator({.rtol = -1}); }).kind() == ErrorKind::Usage));
  CHECK((error_of([] { PrecisionValidator({.noise = kNaN}); }).kind() == ErrorKind::Usage));
}

TEST_CASE("flagged layers are in the table or counted below it") {
  for (const size_t n : {1, 2, 5, 10, 11, 45}) {
    ValidationReport report;
    for (size_t i = 0; i < n; ++i) report.layers.push_back({.name = "<" + std::to_string(i) + ">", .max_diff = 1, .flagged = true});
    report.layers.push_back({.name = "good"});
    const auto text = to_text(report);
    const auto table = text.substr(text.find("max_diff"));
    CHECK(std::count(table.begin(), table.end(), '<') == static_cast<long>(std::min<size_t>(n, 10)));
    CHECK(has(text, "\n(10 of " + std::to_string(n) + " rows") == (n > 10));
  }
}
