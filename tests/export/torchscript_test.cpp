#include "testing.hpp"

#include "npu_train/export/torchscript.hpp"

#include <torch/script.h>

#include <filesystem>
#include <fstream>

#include "nets.hpp"
#include "other_locale.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

double difference_at(const Model& model, const std::vector<at::Tensor>& example, const std::vector<at::Tensor>& unseen) {
  const TempDir dir;
  try {
    export_torchscript(model, batch_of(example), dir / "m.pt");
    return check_torchscript(dir / "m.pt", model, batch_of(unseen)).difference;
  } catch (const Error& e) {
    FAIL_CHECK(std::string(e.what()));
    return kInf;
  }
}

std::string script_refusal(const std::function<at::Tensor(Xs)>& forward, const TorchScriptExportOptions& options = {}) {
  const TempDir dir;
  const OnnxCase c{"refused", {at::randn({4, 3})}, forward};
  const auto error = error_of([&] { export_torchscript(model_of(c), batch_of(c.inputs), dir / "m.pt", options); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(std::filesystem::is_empty(dir.path()));
  return error.what();
}

}  // namespace

TEST_CASE("operators of every kind, at an unseen batch") {
  for (const auto& cases : {layer_cases(), arithmetic_cases(), shape_cases()})
    for (const auto& c : cases) {
      CAPTURE(c.name);
      CHECK(difference_at(model_of(c), c.inputs, rows_of(c.inputs, 5)) < 1e-6);
    }
}

TEST_CASE("operators that have no form in ONNX, writes to parts of tensors, changes of shapes in place") {
  const std::vector<OnnxCase> cases = {
      {"fft", {at::randn({4, 6})}, [](Xs v) { return at::abs(at::fft_rfft(v[0])); }},
      {"write",
       {at::randn({4, 6})},
       [](Xs v) {
         auto y = v[0].neg();
         y.select(1, 0).fill_(0);
         return y + 1;
       }},
      {"shape", {at::randn({4, 6})}, [](Xs v) { return v[0].clone().unsqueeze_(1).transpose_(0, 1); }},
      {"split of the batch",
       {at::randn({4, 6})},
       [](Xs v) {
         return at::cat(v[0].split(2, 1), 0).view({2, v[0].size(0), 3, 1});
       }},
      {"index",
       {at::randn({4, 6})},
       [](Xs v) {
         return v[0].index({torch::indexing::Slice(), at::tensor({0, 2})});
       }},
      {"constant",
       {at::randn({4, 3})},
       [](Xs v) {
         return v[0] * at::tensor({1.0F, 2.0F, 3.0F}) + at::full({3}, 2).add_(1);
       }},
      {"filled",
       {at::randn({4, 3})},
       [](Xs v) {
         return at::empty_like(v[0]).copy_(v[0]) + at::empty({v[0].size(0), 1}).fill_(3);
       }},
      {"sort", {at::randn({4, 6})}, [](Xs v) { return std::get<0>(v[0].sort(1)); }},
  };
  for (const auto& c : cases) {
    CAPTURE(c.name);
    CHECK(difference_at(model_of(c), c.inputs, rows_of(c.inputs, 7)) < 1e-6);
  }
}

TEST_CASE("networks at an unseen batch and number of tokens, with their names, ready to be trained") {
  torch::manual_seed(0);
  for (const auto& net : net_cases()) {
    CAPTURE(net.name);
    auto unseen = rows_of(net.inputs, 5);
    if (!net.model.inputs.empty()) unseen[0] = unseen[0].slice(1, 0, 4);
    CHECK(difference_at(net.model, net.inputs, unseen) < 1e-6);
  }
}

TEST_CASE("the file has the names of the model and its entries, and can be trained") {
  torch::manual_seed(0);
  const auto net = net_cases()[0];
  const auto& model = net.model;
  const TempDir dir;
  model.module->train();
  const auto written = export_torchscript(model, batch_of(net.inputs), dir / "m.pt", {.metadata = {{"npu_train.mean", "0.5"}}});
  CHECK(model.module->is_training());
  CHECK(written.bytes == std::filesystem::file_size(dir / "m.pt"));
  REQUIRE(written.inputs.size() == 1);
  CHECK(written.inputs[0].shape[0].name == "batch");
  CHECK(written.inputs[0].shape[3].size == 16);
  CHECK(written.outputs[0].name == "scores");
  CHECK(written.outputs[0].shape[0].name == "batch");
  CHECK(written.operators.count("aten::conv2d") == 1);
  torch::jit::ExtraFilesMap extra{{"npu_train.mean", ""}};
  auto module = torch::jit::load((dir / "m.pt").string(), at::kCPU, extra);
  CHECK(extra["npu_train.mean"] == "0.5");
  CHECK_FALSE(module.is_training());
  size_t same = 0;
  const auto own = model.module->named_parameters();
  for (const auto& p : module.named_parameters()) same += own.contains(p.name) && at::equal(own[p.name], p.value) ? 1 : 0;
  CHECK(same == own.size());
  module.forward({at::rand({3, 3, 16, 16})}).toTensor().square().mean().backward();
  for (const auto& p : module.named_parameters()) {
    CAPTURE(p.name);
    CHECK(p.value.grad().defined());
  }
}

TEST_CASE("several inputs and outputs, fixed sizes, tied weights") {
  torch::nn::Linear layer(3, 3);
  layer->register_parameter("tied", layer->weight);
  const auto model = model_of(
      [layer](const Batch& batch) mutable {
        const auto y = at::matmul(layer(batch.at("x")), layer->named_parameters()["tied"]) + batch.at("y");
        return Outputs(std::vector<Outputs::Field>{{"first", y}, {"second", batch.at("x") * 2}});
      },
      layer.ptr());
  const TempDir dir;
  const auto example = batch_of({at::randn({4, 3}), at::randn({4, 3})});
  const auto free = export_torchscript(model, example, dir / "m.pt");
  CHECK(free.outputs.size() == 2);
  CHECK(free.inputs[1].name == "y");
  CHECK(check_torchscript(dir / "m.pt", model, batch_of({at::randn({5, 3}), at::randn({5, 3})})).difference < 1e-6);
  auto fixed = model;
  fixed.inputs = {{.name = "x", .dtype = at::kFloat, .shape = {"batch", "tokens"}, .range = {}}};
  fixed.forward = [](const Batch& batch) { return Outputs(batch.at("x").view({batch.at("x").size(0), batch.at("x").size(1), 1})); };
  const auto tokens = export_torchscript(fixed, batch_of({at::randn({4, 3})}), dir / "f.pt", {.dynamic = {"tokens"}});
  CHECK(tokens.inputs[0].shape[0].size == 4);
  CHECK(tokens.inputs[0].shape[1].name == "tokens");
  CHECK(check_torchscript(dir / "f.pt", fixed, batch_of({at::randn({4, 9})})).agrees());
  CHECK(error_of([&] { check_torchscript(dir / "f.pt", fixed, batch_of({at::randn({5, 3})})); }).kind() == ErrorKind::Data);
}

TEST_CASE("what a file would get wrong is refused") {
  CHECK(has(script_refusal([](Xs v) { return v[0] * v[0].max().item<double>(); }), "gives the host a number"));
  CHECK(
      has(script_refusal([](Xs v) { return v[0] + at::rand({3}); }), "operator aten::rand (number 1 of the forward) draws random numbers"));
  CHECK(has(script_refusal([](Xs v) { return at::dropout(v[0], 0.5, true); }), "draws random numbers"));
  CHECK(has(script_refusal([](Xs v) { return v[0].sum(0) / v[0].size(0) / (0.5 * static_cast<double>(v[0].size(0))); }),
            "has the option 'other'"));
  CHECK(has(script_refusal([](Xs v) { return at::zeros({v[0].size(0) + 1, 3}).slice(0, 1) + v[0]; }), "not a multiple of a free size"));
  CHECK(has(script_refusal([](Xs v) { return v[0].size(0) > 2 ? v[0].neg() : v[0].abs(); }), "[export_torchscript] the forward runs"));
  const auto state = at::zeros({3});
  CHECK(has(script_refusal([state](Xs v) { return v[0] + state.add_(1); }), "writes to a constant"));
  CHECK(has(script_refusal([](Xs v) { return v[0] + at::tensor({1.0F, 2.0F, 3.0F}).mul_(2); }), "is filled without operators"));
  CHECK(has(script_refusal([](Xs v) { return v[0] + at::tensor(std::vector<double>(static_cast<size_t>(v[0].size(0)), 1)).unsqueeze(1); }),
            "computed from a size without operators"));
  CHECK(has(script_refusal([](Xs v) { return v[0] + 1; }, {.dynamic = {"tokens"}}), "no input has a free size 'tokens'"));
  const auto warned = model_of(OnnxCase{"equal", {}, [](Xs v) { return at::equal(v[0], v[1]) ? v[0] : v[0] + v[1]; }});
  const TempDir dir;
  CHECK(export_torchscript(warned, batch_of({at::randn({4, 3}), at::randn({4, 3})}), dir / "m.pt").warnings.size() == 1);
  CHECK(error_of([&] {
          export_torchscript(warned, batch_of({at::ones({4, 3}), at::ones({4, 3})}), "/proc/no/m.pt");
        }).kind() == ErrorKind::Checkpoint);
  std::ofstream(dir / "x.pt") << "no archive";
  CHECK(error_of([&] {
          check_torchscript(dir / "x.pt", warned, batch_of({at::ones({4, 3}), at::ones({4, 3})}));
        }).kind() == ErrorKind::Data);
}

TEST_CASE("a file that computes something else is found") {
  torch::nn::Linear layer(3, 2);
  const auto model = model_of([layer](const Batch& batch) mutable { return Outputs(layer(batch.at("x"))); }, layer.ptr());
  const TempDir dir;
  const auto batch = batch_of({at::randn({4, 3})});
  export_torchscript(model, batch, dir / "m.pt");
  CHECK(check_torchscript(dir / "m.pt", model, batch).agrees());
  layer->weight.data().mul_(1.1);
  CHECK_FALSE(check_torchscript(dir / "m.pt", model, batch).agrees());
}

TEST_CASE("a locale of the program does not change the program text of a module, and the export keeps the locale") {
  const TempDir dir;
  const OnnxCase c{"sizes", {at::randn({4, 24})}, [](Xs v) { return at::mul(v[0].reshape({-1, 12, 2}), 0.25); }};
  const auto model = model_of(c);
  export_torchscript(model, batch_of(c.inputs), dir / "plain.pt");
  const auto bytes = [&](const char* name) {
    std::ifstream in(dir / name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  const OtherLocale other;
  export_torchscript(model, batch_of(c.inputs), dir / "other.pt");
  CHECK(bytes("other.pt").size() == bytes("plain.pt").size());
  CHECK(check_torchscript(dir / "other.pt", model, batch_of(c.inputs)).difference == 0);
  std::ostringstream after;
  after << 12;
  CHECK(after.str() == "1.2");
}
