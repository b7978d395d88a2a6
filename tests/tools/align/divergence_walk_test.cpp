#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include <functional>

#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/crafted_dump.hpp"
#include "tools/align/curves.hpp"

using namespace npu_train;

using npu_train::testing::CraftedDump;
using npu_train::testing::has;
using npu_train::testing::TempDir;
using Cause = Divergence::Cause;

namespace {

struct ConvNet : torch::nn::Module {
  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).bias(false)))};
  torch::nn::BatchNorm2d bn1{register_module("bn1", torch::nn::BatchNorm2d(8))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).bias(false)))};
  torch::nn::BatchNorm2d bn2{register_module("bn2", torch::nn::BatchNorm2d(8))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 10))};
  at::Tensor forward(const at::Tensor& x) { return fc(torch::relu(bn2(conv2(torch::relu(bn1(conv1(x)))))).mean({2, 3})); }
};

// What one run does differently.
struct Deed {
  double rounding = 0;  // relative noise in the images, as other kernels would cause it
  double smoothing = 0, weight_decay = 0, momentum_of_norm = 0.1;
  std::function<void(ConvNet&)> before_forward{}, after_backward{};
  std::function<void(ConvNet&, int)> after_update{};
  std::map<std::string, std::string> facts{};
  DumpOptions options{.task = "tensor"};
};

class TwoRuns {
 public:
  DumpComparison compare(const Deed& a, const Deed& b, int steps = 1, const CompareOptions& options = {}) {
    return compare_dumps(run("a", a, steps), run("b", b, steps), options);
  }

 private:
  std::string run(const std::string& name, const Deed& deed, int steps) const {
    at::manual_seed(5);
    ConvNet net;
    net.bn1->options.momentum(deed.momentum_of_norm);
    if (deed.before_forward) deed.before_forward(net);
    Sgd sgd(parameters_of(net), {.lr = 0.05, .momentum = 0.9, .weight_decay = deed.weight_decay});
    auto options = deed.options;
    options.dir = (dir_ / name).string();
    Dumper dumper(options, dumped_model(net), 0, deed.facts);
    dumper.watch(sgd);
    for (int step = 0; step < steps; ++step) {
      at::manual_seed(50 + step);
      const at::Tensor images = at::randn({16, 3, 12, 12}), target = at::randint(10, {16}, at::kLong);
      const at::Tensor x = deed.rounding > 0 ? images * (1 + deed.rounding * at::randn_like(images)) : images;
      sgd.zero_grad();
      dumper.start();
      const at::Tensor loss = at::cross_entropy_loss(net.forward(x), target, {}, at::Reduction::Mean, -100, deed.smoothing);
      dumper.loss(loss);
      loss.backward();
      if (deed.after_backward) deed.after_backward(net);
      dumper.stop();
      sgd.step();
      if (deed.after_update) deed.after_update(net, step);
      dumper.step();
    }
    return options.dir;
  }

  TempDir dir_;
};

// Gives a run the facts of another device, for which rounding is expected, and some rounding.
Deed elsewhere(Deed deed = {}) {
  deed.facts["device"] = "npu:0";
  deed.rounding = 2e-7;
  return deed;
}

}  // namespace

TEST_CASE("divergence_walk: rounding elsewhere raises no alarm") {
  for (const char* task : {"tensor", "statistics"}) {
    CAPTURE(task);
    const DumpOptions options{.task = task};
    const auto result = TwoRuns().compare(elsewhere({.options = options}), {.options = options}, 2);
    CAPTURE(to_text(result));
    CHECK(result.agrees);
    CHECK_FALSE(result.first.found);
  }
}

TEST_CASE("divergence_walk: an error at the loss is not rounding of the forward") {
  for (const char* task : {"tensor", "statistics"}) {
    for (const double smoothing : {0.002, 0.01, 0.1}) {
      CAPTURE(task);
      CAPTURE(smoothing);
      const DumpOptions options{.task = task};
      const auto result = TwoRuns().compare(elsewhere({.smoothing = smoothing, .options = options}), {.options = options});
      CAPTURE(to_text(result));
      CHECK_FALSE(result.agrees);
      CHECK(result.first.layer == "loss");
      CHECK(has(result.first.likely.at(0), "label_smoothing"));
    }
  }
}

TEST_CASE("divergence_walk: what a step got wrong is not forgiven in the next") {
  const auto decays = elsewhere({.after_update = [](ConvNet& net, int step) {
    const at::NoGradGuard no_grad;
    if (step == 0)
      for (const auto& p : net.parameters()) p.mul_(1 - 1e-3);
  }});
  const auto result = TwoRuns().compare(decays, {}, 2);
  CAPTURE(to_text(result));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Optimizer));
  CHECK(result.first.step == 0);
  CHECK(result.steps.at(1).rounding == 0);
}

TEST_CASE("divergence_walk: options of the optimizer are compared and named") {
  const auto result = TwoRuns().compare(elsewhere({.weight_decay = 5e-4}), {.weight_decay = 1e-4}, 2);
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Optimizer));
  CHECK(result.first.likely.at(0) == "different weight_decay: 5e-04 and 1e-04");
  CHECK(result.first.step == 0);
}

TEST_CASE("divergence_walk: running statistics that are off are no rounding") {
  for (const char* task : {"tensor", "statistics"}) {
    CAPTURE(task);
    const DumpOptions options{.task = task};
    const auto result = TwoRuns().compare(elsewhere({.momentum_of_norm = 0.105, .options = options}), {.options = options});
    CAPTURE(to_text(result));
    CHECK_FALSE(result.agrees);
    CHECK(result.first.layer == "bn1");
    CHECK(has(result.first.sentence, "running statistics of bn1"));
    CHECK(npu_train::testing::any_has(result.first.likely, "BatchNorm"));
  }
}

TEST_CASE("divergence_walk: a gradient that one side lacks is named") {
  const auto drop = [](ConvNet& net) { net.bn1->bias.mutable_grad() = at::Tensor(); };
  for (const bool in_a : {true, false}) {
    const auto without = elsewhere({.after_backward = drop});
    const auto result = in_a ? TwoRuns().compare(without, {}) : TwoRuns().compare({}, without);
    CHECK_FALSE(result.agrees);
    CHECK((result.first.cause == Cause::Gradient));
    CHECK(result.first.layer == "bn1");
    CHECK(has(result.first.sentence, std::string(in_a ? "A" : "B") + " has no gradient of bn1's bias"));
  }
}

namespace {

// A network in which one operator uses both parameters and a dump names the call after the first one, as for the projection in attention.
struct ProjectionNet : torch::nn::Module {
  at::Tensor in_weight = register_parameter("in_weight", at::randn({12, 6})), in_bias = register_parameter("in_bias", at::randn({12}));
  torch::nn::Linear out{register_module("out", torch::nn::Linear(12, 3))};
};

}  // namespace

TEST_CASE("divergence_walk: a gradient that is dropped of a parameter without a call of its own") {
  const TempDir dir;
  const auto run = [&](const char* name, bool drops) {
    at::manual_seed(4);
    ProjectionNet net;
    const at::Tensor x = at::randn({8, 6});
    Dumper dumper({.task = "tensor", .dir = (dir / name).string()}, dumped_model(net), 0, {{"device", name}});
    dumper.start();
    const at::Tensor loss = net.out(torch::gelu(at::linear(x * (1 + 2e-7 * (drops ? 1 : 0)), net.in_weight, net.in_bias))).square().mean();
    dumper.loss(loss);
    loss.backward();
    if (drops) net.in_bias.mutable_grad().zero_();
    dumper.stop();
    dumper.step();
    return dir / name;
  };
  const auto result = compare_dumps(run("a", true), run("b", false));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Gradient));
  CHECK(result.first.layer == "in_bias");
}

TEST_CASE("divergence_walk: facts that change kernels are no equal environment") {
  for (const std::string fact : {"fused_kernels", "memory_format", "cpu_low_precision"}) {
    auto other = elsewhere();
    other.facts = {{"device", "cpu"}, {"precision", "32-true"}, {fact, "one"}};
    auto same = Deed{.facts = other.facts};
    CHECK(TwoRuns().compare(other, same).first.found);  // equal environments: every bit counts
    same.facts[fact] = "another";
    CHECK_FALSE(TwoRuns().compare(other, same).first.found);
  }
}

namespace {

// Describes the output of a norm, either with negative values or after ReLU.
std::string norm_output(double max, double min) {
  return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 8], "Max": )" + std::to_string(max) + R"(, "Min": )" +
         std::to_string(min) + R"(, "Mean": 0.5, "Norm": )" + std::to_string(4 * max - min) + "}";
}

// Dumps a norm, and after it a layer whose input is equal on both sides.
std::filesystem::path norm_dump(const std::filesystem::path& folder, const std::string& type, double min, const std::string& facts) {
  CraftedDump dump(folder, facts);
  dump.add("Module.bn1." + type + ".forward.0", norm_output(min < 0 ? 2 : 1, min), norm_output(1, -1));
  dump.add("Module.conv2.Conv2d.forward.0", norm_output(1, -1), norm_output(1, -1));
  return dump.write();
}

}  // namespace

TEST_CASE("divergence_walk: an output that does not propagate is tolerated only for a norm that one side fuses") {
  const TempDir dir;
  const auto agrees = [&](const std::string& type, double min, const char* fused_a, const char* fused_b) {
    const auto facts = [](const char* fused) { return R"("device": "cpu", "fused_kernels": ")" + std::string(fused) + "\""; };
    return compare_dumps(norm_dump(dir / "a", type, min, facts(fused_a)), norm_dump(dir / "b", type, 0, facts(fused_b))).agrees;
  };
  CHECK(agrees("BatchNorm2d", -1, "false", "auto"));
  CHECK_FALSE(agrees("BatchNorm2d", -1, "auto", "false"));  // the fused side has no negative values
  CHECK_FALSE(agrees("BatchNorm2d", -1, "auto", "auto"));
  CHECK_FALSE(agrees("Conv2d", -1, "false", "auto"));
}

TEST_CASE("divergence_walk: weights whose norm was summed in another order are no other weights, and hide no norm that is fused") {
  const TempDir dir;
  const auto dump = [&](const char* name, double norm, double low, const std::string& facts) {
    CraftedDump out(dir / name, facts);
    const auto value = [](const std::string& shape, double max, double min, double all) {
      return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": )" + shape + R"(, "Max": )" + std::to_string(max) +
             R"(, "Min": )" + std::to_string(min) + R"(, "Mean": 0.0, "Norm": )" + std::to_string(all) + "}";
    };
    const auto plain = value("[8, 8]", 1, -1, 4);
    out.add_layer("Module.conv1.Conv2d.forward.0", plain, plain, value("[512, 512, 3, 3]", 0.1, -0.1, norm));
    out.add("Module.bn1.BatchNorm2d.forward.0", value("[8, 8]", low < 0 ? 2 : 1, low, low < 0 ? 9 : 4), plain);
    out.add("Module.conv2.Conv2d.forward.0", plain, plain);
    return out.write();
  };
  const auto b = dump("b", 32.017330, 0, R"("device": "cpu", "fused_kernels": "auto")");
  const std::string sim = R"("device": "sim_npu:0", "fused_kernels": "false")";
  CHECK(compare_dumps(dump("a", 32.018413, -1, sim), b).agrees);       // 3.4e-5: the simulator sums 2.4 million squares
  const auto other = compare_dumps(dump("other", 32.03, -1, sim), b);  // 4e-4: another weight
  CHECK_FALSE(other.agrees);
  CHECK((other.first.cause == Cause::Weights));
}

TEST_CASE("divergence_walk: weights that are not finite on one side in a later step are no chaos") {
  for (const char* task : {"tensor", "statistics"}) {
    const DumpOptions options{.task = task};
    const auto broken = [](ConvNet& net, int step) {
      const at::NoGradGuard no_grad;
      if (step == 0)
        for (auto& p : net.parameters()) p.fill_(std::numeric_limits<float>::quiet_NaN());
    };
    const auto result = TwoRuns().compare(elsewhere({.after_update = broken, .options = options}), {.options = options}, 2, {.steps = {1}});
    CAPTURE(to_text(result));
    CHECK((result.first.cause == Cause::Weights));
    CHECK(has(result.first.sentence, "the weights of conv1 (Conv2d, forward, step 1) are not finite in A only"));
    CHECK_FALSE(has(to_text(result), "chaos"));
  }
}

TEST_CASE("divergence_walk: a fused norm that a part cannot prove is reported and raises no alarm") {
  const TempDir dir;
  const std::string fused = R"("device": "cpu", "fused_kernels": "auto")", plain = R"("device": "npu:0", "fused_kernels": "false")";
  const auto a = norm_dump(dir / "a", "BatchNorm2d", -1, plain), b = norm_dump(dir / "b", "BatchNorm2d", 0, fused);
  const auto part = compare_dumps(a, b, {.layers = "bn1"});
  CAPTURE(to_text(part));
  CHECK(part.agrees);
  CHECK((part.steps[0].unproven_places == std::set<std::string>{"bn1"}));
  CHECK(has(to_text(part), "not proven in this part: bn1"));
  CHECK(part.judged() < 1);
  CHECK(part.steps[0].not_judged == 1);
  CHECK(part.steps[0].rounding == 0);
  CHECK(has(to_text(part), "1 layer cannot be proven in this part (see the notes); 1 value could not be judged"));
  const auto strict = compare_dumps(a, b, {.layers = "bn1", .strict = true});
  CHECK_FALSE(strict.agrees);
  CHECK(has(strict.first.sentence, "no later layer is compared that would prove it"));
  CHECK(compare_dumps(a, b).steps[0].unproven_places.empty());  // the next layer proves it
  const auto both = norm_dump(dir / "c", "BatchNorm2d", 0, plain);
  CHECK_FALSE(
      compare_dumps(norm_dump(dir / "d", "BatchNorm2d", -1, plain), norm_dump(dir / "e", "BatchNorm2d", 0, plain), {.layers = "bn1"})
          .agrees);  // neither side fuses the norm
  CHECK(compare_dumps(both, both, {.layers = "bn1"}).steps[0].unproven_places.empty());
}

TEST_CASE("divergence_walk: a part that has the backward of a fused norm alone, by the dump's own list") {
  const TempDir dir;
  const auto dump = [&](const char* name, double into_norm, double out_of_conv, const std::string& fused) {
    CraftedDump out(dir / name, R"("device": ")" + fused + R"(", "fused_kernels": ")" + fused + R"(", "part": "list: layer4")");
    out.add_call("Module.bn2.BatchNorm2d.backward.0", R"({"input": [)" + CraftedDump::tensor("[8, 8]", into_norm) + R"(], "output": [)" +
                                                          CraftedDump::tensor("[8, 8]", 1) + "]}");
    out.add_backward("Module.conv2.Conv2d.backward.0", CraftedDump::tensor("[8, 8]", out_of_conv));
    return out.write();
  };
  const auto a = dump("a", 1, 1, "false");
  const auto unproven = compare_dumps(a, dump("b", 3, 1.005, "auto"));  // ReLU's kinks in omitted layers can cause this 0.5 %
  CAPTURE(to_text(unproven));
  CHECK(unproven.agrees);
  CHECK((unproven.steps[0].unproven_places == std::set<std::string>{"bn2"}));
  const auto wrong = compare_dumps(a, dump("c", 3, 1.5, "auto"));
  CHECK_FALSE(wrong.agrees);
  CHECK(wrong.first.layer == "conv2");
}

namespace {

// Dumps a run in `precision`. Its forward output is off by `forward`, and its gradient is off by `gradient`.
std::filesystem::path precise_dump(const std::filesystem::path& folder, const std::string& precision, const std::string& dtype,
                                   double forward, double gradient) {
  CraftedDump dump(folder, R"("device": "cpu", "precision": ")" + precision + "\"");
  const auto value = [&](double max) { return CraftedDump::tensor("[8, 8]", max, dtype); };
  dump.add("Module.conv1.Conv2d.forward.0", value(1 + forward), value(1));
  dump.add_backward("Module.conv1.Conv2d.backward.0", value(1 + gradient));
  return dump.write();
}

}  // namespace

TEST_CASE("divergence_walk: gradients of bf16 are allowed what kinks make of bf16, those of fp32 a tenth") {
  const TempDir dir;
  const auto agrees = [&](const std::string& low, const std::string& dtype, double forward, double gradient) {
    return compare_dumps(precise_dump(dir / "a", low, dtype, forward, gradient), precise_dump(dir / "b", "32-true", "float32", 0, 0))
        .agrees;
  };
  CHECK(agrees("bf16-mixed", "bfloat16", 0.01, 0.4));
  CHECK_FALSE(agrees("bf16-mixed", "bfloat16", 0.01, 5));
  CHECK_FALSE(agrees("bf16-mixed", "bfloat16", 1e-4, 0.4));  // the forward's error is too small to explain it
  CHECK(agrees("32-mixed", "float32", 1e-5, 0.02));
  CHECK_FALSE(agrees("32-mixed", "float32", 9e-4, 0.4));
}

TEST_CASE("divergence_walk: a run in fp32 that is there is the reference that is advised") {
  const TempDir dir;
  const auto advice = [&](const std::string& precision) {
    const auto result =
        compare_dumps(precise_dump(dir / "a", "32-true", "float32", 0, 0), precise_dump(dir / "b", precision, "bfloat16", 0.09, 0));
    CHECK_FALSE(result.agrees);
    std::string out;
    for (const auto& text : result.first.advice) out += text + "\n";
    return out;
  };
  CHECK(has(advice("bf16-mixed"), "compare B with another run in its precision (bf16-mixed) and use A, which is in fp32, as --reference"));
  CHECK_FALSE(has(advice("bf16-mixed"), "third run"));
}

TEST_CASE("divergence_walk: the optimizer's step in a part that leaves gradients out") {
  const TempDir dir;
  // One side fuses a norm. The gradient of conv2 is compared, that of fc is not; the optimizer's mean of fc's gradient is off by `update`.
  const auto dump = [&](const char* name, bool fuses, const std::string& part, double update = 0, double rate = 0.1) {
    CraftedDump out(dir / name, R"("device": "cpu", "fused_kernels": ")" + std::string(fuses ? "auto" : "false") + "\"" + part);
    const auto value = CraftedDump::tensor("[8, 8]");
    out.add("Module.bn1.BatchNorm2d.forward.0", norm_output(fuses ? 1 : 2, fuses ? 0 : -1), norm_output(1, -1));
    out.add("Module.conv2.Conv2d.forward.0", norm_output(1, -1), norm_output(1, -1));
    out.add_call("Module.conv2.Conv2d.parameters_grad.0", R"({"weight": [)" + value + "]}");
    out.add_call("Module.optimizer.Adamw.forward.0", R"({"input_args": [], "input_kwargs": {"lr": {"type": "float", "value": )" +
                                                         std::to_string(rate) + R"(}}, "output": {"exp_avg/fc.weight": )" +
                                                         CraftedDump::tensor("[8, 8]", 1 + update) + "}}");
    return out.write();
  };
  const std::string part = R"(, "part": "list: conv2")";
  const auto b = dump("b", true, part);
  const auto unproven = compare_dumps(dump("a", false, part, 9e-4), b);  // a kink can do this to a gradient
  CAPTURE(to_text(unproven));
  CHECK(unproven.agrees);
  CHECK(unproven.steps[0].unproven_update);
  CHECK(has(to_text(unproven), "the optimizer's step cannot be proven in this part"));
  CHECK(has(to_text(unproven), "not proven in this part: the optimizer's step differs by more than the compared gradients"));
  const auto rounding = compare_dumps(dump("c", false, part, 1e-6), b);
  CHECK(rounding.agrees);
  CHECK_FALSE(rounding.steps[0].unproven_update);
  CHECK((compare_dumps(dump("d", false, part, 0.2), b).first.cause == Cause::Optimizer));
  CHECK((compare_dumps(dump("e", false, part, 0, 0.2), b).first.cause == Cause::Optimizer));
  // complete dumps contain every gradient, and none of them explains the difference
  CHECK((compare_dumps(dump("f", false, "", 9e-4), dump("g", true, "")).first.cause == Cause::Optimizer));
}
