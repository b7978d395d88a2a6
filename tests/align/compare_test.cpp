#include "testing.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include <torch/nn/modules.h>

#include "align/crafted_dump.hpp"
#include "npu_train/align/compare.hpp"
#include "npu_train/align/compare_report.hpp"
#include "npu_train/align/dumper.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/named_state.hpp"
#include "npu_train/optim/sgd.hpp"

using namespace npu_train;
using npu_train::testing::CraftedDump;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;
using Cause = Divergence::Cause;

namespace {

struct CompareNet : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 6))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(6, 6))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(6, 3))};
  double eps = 1e-5;
  bool clamp_second = false, bf16_second = false;
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = at::layer_norm(first(x), {6}, norm->weight, norm->bias, eps);
    if (bf16_second) {
      y = at::linear(y.to(at::kBFloat16), second->weight.to(at::kBFloat16), second->bias.to(at::kBFloat16)).to(at::kFloat);
    } else {
      y = at::linear(y, second->weight, second->bias);
    }
    return head(at::gelu(y));
  }
};

// What goes wrong in one run.
struct Fault {
  std::function<void(CompareNet&)> in_net{};
  std::function<void(CompareNet&)> in_gradients{};
  double lr = 0.1, input = 1, loss = 1, clip = 1, momentum = 0;
  std::map<std::string, std::string> facts{};
};

class Runs {
 public:
  std::string run(const std::string& name, const Fault& fault = {}, DumpOptions options = {.task = "tensor"}) {
    at::manual_seed(3);
    CompareNet net;
    if (fault.in_net) fault.in_net(net);
    const at::Tensor x = at::randn({8, 6}) * fault.input;
    Sgd sgd(parameters_of(net), {.lr = fault.lr, .momentum = fault.momentum});
    options.dir = (dir_ / name).string();
    Dumper dumper(options, dumped_model(net), 0, fault.facts);
    dumper.watch(sgd);
    for (int step = 0; step < 2; ++step) {
      sgd.zero_grad();
      dumper.start();
      const at::Tensor loss = net.forward(x).square().mean() * fault.loss;
      dumper.loss(loss);
      loss.backward();
      if (fault.in_gradients) fault.in_gradients(net);
      dumper.stop();
      for (const auto& p : net.parameters()) p.mutable_grad().mul_(fault.clip);
      sgd.step();
      dumper.step();
    }
    return options.dir;
  }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

// Facts of another device: rounding is expected.
const std::map<std::string, std::string> kElsewhere = {{"device", "npu:0"}};

DumpComparison with_fault(const Fault& fault, const DumpOptions& options = {.task = "tensor"}, const CompareOptions& how = {}) {
  Runs runs;
  return compare_dumps(runs.run("a", fault, options), runs.run("b", {}, options), how);
}

}  // namespace

namespace {

const auto kNanWeight = [](CompareNet& net) {
  const at::NoGradGuard no_grad;
  net.norm->weight.fill_(std::numeric_limits<float>::quiet_NaN());
};

// "a weight ... zero", "not finite": all that is said of a divergence.
std::string said(const DumpComparison& result) {
  auto out = result.first.sentence;
  for (const auto& text : result.first.likely) out += "; " + text;
  for (const auto& text : result.first.advice) out += "; " + text;
  return out;
}

}  // namespace

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

TEST_CASE("the layer that began it is named, not those behind it") {
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

TEST_CASE("what cannot be compared is listed with its cause, and the rest goes on") {
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
            "no value"));
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

TEST_CASE("files that cannot be read are told as such, and hide no divergence") {
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
      CHECK(has(to_text(result), "nothing is proven, 1 value cannot be read; the rest agrees"));
      CHECK_FALSE(has(to_text(result), "error grows"));
    }
    const auto fault = runs.run("fault", {.in_net = transpose, .facts = facts});
    std::filesystem::remove(fault + "/step0/rank0/dump_tensor_data/" + name);
    const auto found = compare_dumps(fault, b);
    CHECK(found.first.layer == "second");
    CHECK(has(to_text(found), "; 1 value cannot be read"));
  }
}

TEST_CASE("a tolerance means layers by their path, and one of no layer is told") {
  const auto other = [](CompareNet& net) { net.eps = 1e-3; };
  const auto notes = [&](const char* pattern, const char* mean) {
    const auto result = with_fault({.in_net = other}, {.task = "tensor"}, {.layer_tolerance = {{pattern, {10, 10}}}});
    return result.steps.at(0).failed ==
                   with_fault({.in_net = other}, {.task = "tensor"}, {.layer_tolerance = {{mean, {10, 10}}}}).steps[0].failed
               ? join(result.notes)
               : "another number of failures";
  };
  CHECK(notes("norm*", "Module.norm.") == "");
  CHECK(notes("secnd.*", "none") == "--tolerance secnd.* fits no layer or call that was compared");
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
  CAPTURE(said(by_state));
  CHECK((by_state.first.cause == Cause::Optimizer));
  CHECK(has(said(by_state), "A's state are 0.25 times B's"));
  CHECK_FALSE(has(said(by_state), "found_inf"));
  const auto by_fact = compare_dumps(runs.run("c", {.clip = 0.25, .facts = {{"gradient_clip", "norm 0.01"}}}),
                                     runs.run("d", {.facts = {{"gradient_clip", "none"}}}));
  CHECK(has(said(by_fact), "another clipping of gradients: norm 0.01 and none"));
  CHECK_FALSE(has(said(by_fact), "found_inf"));
  const auto unknown = compare_dumps(runs.run("e", {.clip = 0.25}), runs.run("f"));
  CHECK(has(said(unknown), "clips"));
  CHECK_FALSE(has(said(unknown), "found_inf"));
}

TEST_CASE("where runs agree nothing is called likely") {
  const auto nudge = [](CompareNet& net) {
    const at::NoGradGuard no_grad;
    net.second->weight.mul_(1 + 1e-6);
  };
  Runs runs;
  const std::map<std::string, std::string> facts = {{"device", "cpu"}, {"precision", "32-true"}};  // one environment: each bit is told
  const auto result = compare_dumps(runs.run("a", {.in_net = nudge, .facts = facts}), runs.run("b", {.facts = facts}), {.rtol = 1e-2});
  CHECK(result.agrees);
  CHECK(result.first.within_tolerance);
  CHECK(result.first.likely.empty());
  CHECK(result.first.advice.empty());
}

TEST_CASE("a reference of another network or with NaN is refused, by name") {
  Runs runs;
  const auto a = runs.run("a", {.input = 1.001}), b = runs.run("b");
  const auto why = [&](const std::string& reference) {
    return std::string(error_of([&] { compare_dumps(a, b, {.reference = reference}); }).what());
  };
  CraftedDump other(runs.dir() / "other");
  other.add("Module.fc.Linear.forward.0", CraftedDump::tensor("[2, 3]"), CraftedDump::tensor("[2, 7]"));
  CHECK(has(why(other.write().string()), "have no counterpart of their shape"));
  const auto nan = runs.run("nan", {.in_net = kNanWeight});
  CHECK(has(why(nan), "are not finite where those of both runs are, the first Module.norm"));
  CHECK(has(why(nan), nan));
}

TEST_CASE("a dump.json that ends before its first call is cut short, not of another network") {
  Runs runs;
  const auto a = runs.run("a"), b = runs.run("b");
  for (const char* step : {"step0", "step1"}) {
    const auto path = a + "/" + step + "/rank0/dump.json";
    write_file_atomic(path, read_file(path, 1 << 24).substr(0, 10));
  }
  const std::string text = error_of([&] { compare_dumps(a, b); }).what();
  CHECK(has(text, "is cut short"));
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
  for (size_t at = 0; (at = text.find("Module.second.Linear", at)) != std::string::npos; at += 5)
    text.replace(at, 20, "Module.blocks1.Linear");
  write_file_atomic(path, text);
  std::filesystem::remove_all(a + "/step1");
  const auto strict = compare_dumps(a, b, {.fuzzy = false});
  CHECK(strict.steps[0].one_sided >= 4);
  for (const auto& how : {CompareOptions{}, CompareOptions{.fuzzy = false, .mapping = {{"second", "blocks1"}}}}) {
    const auto result = compare_dumps(a, b, how);
    CHECK(result.steps[0].one_sided == 0);
  }
}

TEST_CASE("with a reference only errors out of proportion fail") {
  Runs runs;
  // B rounds its input a little, A rounds as much elsewhere: neither is at fault
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

TEST_CASE("NaN on both sides proves nothing; on one side it is found, with its own cause") {
  for (const auto* task : {"tensor", "statistics"}) {
    CAPTURE(task);
    const DumpOptions how{.task = task};
    for (const auto& facts : {std::map<std::string, std::string>{}, kElsewhere}) {
      Runs runs;
      const auto both =
          compare_dumps(runs.run("a", {.in_net = kNanWeight, .facts = facts}, how), runs.run("b", {.in_net = kNanWeight}, how));
      CAPTURE(said(both));
      CHECK_FALSE(both.agrees);
      CHECK((both.first.cause == Cause::NotProven));
      CHECK(both.first.layer == "norm");
      CHECK_FALSE(both.first.within_tolerance);
      CHECK(has(both.first.sentence, "both runs have NaN from the weights of norm"));
      CHECK(has(both.first.sentence, "proves nothing"));
      CHECK(has(to_text(both), "nothing is proven"));
    }
    const auto one = with_fault({.in_net = kNanWeight}, how);
    CAPTURE(said(one));
    CHECK_FALSE(one.agrees);
    CHECK(one.first.layer == "norm");
    CHECK(has(said(one), "not finite in A alone"));
    CHECK_FALSE(has(said(one), "shape"));
    CHECK_FALSE(has(said(one), "zero on one side"));  // the biases are zero, and NaN is no number
    // an all-zero weight against NaN
    Runs runs;
    const auto zero = [](CompareNet& net) {
      const at::NoGradGuard no_grad;
      net.norm->weight.zero_();
    };
    const auto against = compare_dumps(runs.run("a", {.in_net = zero}, how), runs.run("b", {.in_net = kNanWeight}, how));
    CHECK(has(said(against), "not finite in B alone"));
    CHECK_FALSE(has(said(against), "missing in the checkpoint"));
  }
}

TEST_CASE("a loss that is not finite on both sides proves nothing, as in histories") {
  Runs runs;
  const auto result = compare_dumps(runs.run("a", {.loss = 1e39}), runs.run("b", {.loss = 1e39}));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::NotProven));
}

TEST_CASE("a difference is told before NaN that come behind it") {
  Runs runs;
  const auto late = [](CompareNet& net) { net.head->bias.mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN()); };
  const auto result = compare_dumps(runs.run("a", {.in_gradients = late, .input = 1.5}), runs.run("b", {.in_gradients = late}));
  CHECK((result.first.cause == Cause::Input));
  CHECK(has(said(result), "both runs have NaN from the gradients of head"));
}

TEST_CASE("masks of -inf, NaN that is masked, and steps that the loss scale skips raise no alarm") {
  const auto run = [](const std::filesystem::path& dir, double loss, const std::string& facts) {
    CraftedDump dump(dir, facts);
    const auto scores = dump.tensor("scores.pt", at::tensor({1.0, -INFINITY, 2.0}, at::kFloat), "[3]");
    const auto masked = dump.tensor("masked.pt", at::tensor({1.0, NAN, 2.0}, at::kFloat), "[3]");
    dump.add("Module.scores.Layer.forward.0", scores);
    dump.add("Module.masked.Layer.forward.0", masked, scores);
    dump.add("Module.loss.Loss.forward.0", dump.tensor("loss.pt", at::full({}, loss, at::kFloat), "[]"));
    dump.add_backward("Module.masked.Layer.backward.0", dump.tensor("gradient.pt", at::tensor({1.0, NAN, 2.0}, at::kFloat), "[3]"));
    return dump.write();
  };
  const TempDir dir;
  const std::string scaled = R"("loss_scale": 65536.0)";
  const auto fine = compare_dumps(run(dir / "a", 0.5, scaled), run(dir / "b", 0.5, scaled));
  CAPTURE(to_text(fine));
  CHECK(fine.agrees);
  CHECK(has(to_text(fine), "do not reach the loss"));
  CHECK_FALSE(compare_dumps(run(dir / "c", 0.5, ""), run(dir / "d", 0.5, "")).agrees);  // nobody skips these gradients
  CHECK_FALSE(compare_dumps(run(dir / "e", NAN, scaled), run(dir / "f", NAN, scaled)).agrees);
}

TEST_CASE("what is of another shape is not called infinite") {
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
  CHECK(has(result.first.sentence, "gives outputs that are of another shape ([4, 3] and [4, 5])"));
  CHECK_FALSE(has(result.first.sentence, "finite"));
}

TEST_CASE("other models are told as such, and what is common is compared") {
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
  CAPTURE(said(result));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Model));
  CHECK(has(result.first.sentence, "A (conv) has 3 layers with 14 parameters, 2 of them of its own"));
  CHECK(has(result.first.sentence, "B (block) has 4 layers with 24 parameters, 3 of them of its own"));
  CHECK(has(said(result), "in what both have: head"));
  CHECK(result.steps[0].compared > 0);
  // one layer that was exchanged is told as that layer
  CHECK((compare_dumps(run(dir / "c", 9), run(dir / "d", 10)).first.cause == Cause::Model));  // every width is another one
  const auto deeper = [&](const std::string& name, int layers) {
    CraftedDump dump(dir / name);
    for (int i = 0; i < layers; ++i)
      dump.add_layer("Module.conv" + std::to_string(i) + ".Conv2d.forward.0", CraftedDump::tensor("[4, 2]"), CraftedDump::tensor("[4, 2]"),
                     CraftedDump::tensor("[2, 2]"));
    return dump.write();
  };
  CHECK_FALSE((compare_dumps(deeper("e", 9), deeper("f", 10)).first.cause == Cause::Model));
}

TEST_CASE("one fused weight against three agrees by what the layer gives") {
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
  CHECK(has(to_text(split), "the parameters of attention are as many on both sides"));
  CHECK_FALSE(compare_dumps(fused, run(dir / "c", {"q.Linear", "k.Linear"}, "[2, 2]")).agrees);
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
  const auto b = dump(dir / "b", {1e-2, 1e-5, 8e-3});  // the second agrees by luck
  CHECK(compare_dumps(dump(dir / "a", {9e-3, 1e-2, 7e-3}), b, how).agrees);
  const auto bad = compare_dumps(dump(dir / "c", {9e-3, 6e-2, 7e-3}), b, how);
  CHECK(bad.steps.at(0).failed == 1);
  CHECK(has(to_text(bad), "error to the reference 0.06, the other run's 1e-5, allowed 0.02"));
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
  CAPTURE(said(bad));
  CHECK_FALSE(bad.agrees);
  CHECK_FALSE(has(said(bad), "reference with"));
  CHECK_FALSE(has(said(bad), "(--reference)"));
}

TEST_CASE("steps that were chosen are a part") {
  CHECK(with_fault({}, {.task = "tensor"}, {.steps = {0}}).sampled);
  CHECK_FALSE(with_fault({}, {.task = "tensor"}, {.steps = {0, 1}}).sampled);
}
