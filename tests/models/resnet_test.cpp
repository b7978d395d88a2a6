#include "testing.hpp"

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <limits>
#include <map>

#include "npu_train/models/resnet.hpp"
#include "npu_train/nn/fuse.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/trace/op_observer.hpp"

using namespace npu_train;

namespace {

std::map<std::string, std::vector<int64_t>> shapes(const Model& model) {
  std::map<std::string, std::vector<int64_t>> out;
  for (const auto& [name, value] : named_state(*model.module)) out[name] = value.sizes().vec();
  return out;
}

}  // namespace

TEST_CASE("parameter counts of torchvision at 1000 classes") {
  const std::map<int64_t, int64_t> counts = {{18, 11689512}, {34, 21797672}, {50, 25557032}, {101, 44549160}, {152, 60192808}};
  for (const auto& [depth, count] : counts) {
    const Model model = resnet(depth);
    CHECK(parameters_of(*model.module).numel() == count);
    CHECK(model.name == "resnet" + std::to_string(depth));
  }
}

TEST_CASE("names and shapes are torchvision's") {
  const Model r50 = resnet(50, {.num_classes = 7});
  const auto s = shapes(r50);
  CHECK(s.size() == 320);
  CHECK(s.at("conv1.weight") == std::vector<int64_t>{64, 3, 7, 7});
  CHECK(s.at("bn1.running_var") == std::vector<int64_t>{64});
  CHECK(s.at("bn1.num_batches_tracked").empty());
  CHECK(s.at("layer1.0.downsample.0.weight") == std::vector<int64_t>{256, 64, 1, 1});
  CHECK(s.at("layer1.0.downsample.1.bias") == std::vector<int64_t>{256});
  CHECK(s.count("layer1.1.downsample.0.weight") == 0);
  CHECK(s.at("layer2.0.conv2.weight") == std::vector<int64_t>{128, 128, 3, 3});
  CHECK(s.at("layer4.2.conv3.weight") == std::vector<int64_t>{2048, 512, 1, 1});
  CHECK(s.at("fc.weight") == std::vector<int64_t>{7, 2048});
  CHECK(s.at("fc.bias") == std::vector<int64_t>{7});

  // Parameters are in the order of a state_dict, in which a block's shortcut comes last.
  const auto names = parameters_of(*r50.module);
  CHECK(names[0].name == "conv1.weight");
  CHECK(names[3].name == "layer1.0.conv1.weight");
  CHECK(names[12].name == "layer1.0.downsample.0.weight");

  const auto r18 = shapes(resnet(18));
  CHECK(r18.size() == 122);
  CHECK(r18.at("layer2.0.downsample.0.weight") == std::vector<int64_t>{128, 64, 1, 1});
  CHECK(r18.count("layer1.0.downsample.0.weight") == 0);
  CHECK(r18.count("layer1.0.conv3.weight") == 0);
}

TEST_CASE("stem, channels and head") {
  c10::AutoGradMode no_grad(false);
  const at::Tensor x = at::randn({2, 3, 32, 32});
  const Model small = resnet(18, {.num_classes = 5, .image_size = 32, .stem = "small"});
  CHECK(shapes(small).at("conv1.weight") == std::vector<int64_t>{64, 3, 3, 3});
  CHECK(small.blocks.front().forward({}, x).sizes().vec() == std::vector<int64_t>{2, 64, 32, 32});
  CHECK(small.forward(x).sizes().vec() == std::vector<int64_t>{2, 5});
  CHECK(small.inputs.front().str() == "Float [batch, 3, height (32), width (32)]");
  CHECK(small.head == "fc");
  CHECK(small.num_classes == 5);

  const Model grey = resnet(18, {.num_classes = 5, .channels = 1});
  CHECK(grey.blocks.front().forward({}, at::randn({2, 1, 64, 64})).sizes().vec() == std::vector<int64_t>{2, 64, 16, 16});
}

TEST_CASE("blocks in order are the forward") {
  c10::AutoGradMode no_grad(false);
  const Model model = resnet(18, {.num_classes = 4});
  model.module->eval();
  const at::Tensor x = at::randn({2, 3, 64, 64});
  REQUIRE(model.blocks.size() == 10);
  CHECK(model.blocks[1].name == "layer1.0");
  CHECK(find_module(*model.module, model.blocks[8].name) != nullptr);
  at::Tensor y = x;
  for (const auto& block : model.blocks) y = block.forward({}, y);
  CHECK(at::equal(y, model.forward(x)));
}

TEST_CASE("zero-init of the last gamma makes blocks start as identity") {
  c10::AutoGradMode no_grad(false);
  const at::Tensor x = at::randn({2, 64, 8, 8}).abs();
  CHECK(at::equal(resnet(18).blocks[1].forward({}, x), x));
  CHECK_FALSE(at::equal(resnet(18, {.zero_init_residual = false}).blocks[1].forward({}, x), x));
  int64_t zero = 0;
  for (const auto& p : parameters_of(*resnet(50).module))
    if (p.name.ends_with("bn3.weight")) zero += p.value.abs().max().item<float>() == 0.0f;
  CHECK(zero == 3 + 4 + 6 + 3);
}

TEST_CASE("the same seed gives the same weights, another seed others") {
  const auto first = [](uint64_t seed) {
    torch::manual_seed(seed);
    return parameters_of(*resnet(18).module);
  };
  const auto a = first(1), b = first(1), c = first(2);
  for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i].value, b[i].value));
  CHECK_FALSE(at::equal(a[0].value, c[0].value));
  // Kaiming normal by fan out: std = sqrt(2 / (64 * 49)).
  CHECK(a[0].value.std().item<double>() == doctest::Approx(std::sqrt(2.0 / (64 * 49))).epsilon(0.05));
}

TEST_CASE("training moves the running statistics once, evaluation does not") {
  c10::AutoGradMode no_grad(false);
  const Model model = resnet(18, {.num_classes = 4});
  const at::Tensor x = at::randn({4, 3, 32, 32});
  const auto counter = [&] { return model.module->named_buffers()["bn1.num_batches_tracked"].item<int64_t>(); };
  const at::Tensor mean = model.module->named_buffers()["bn1.running_mean"];
  model.module->train();
  model.forward(x);
  CHECK(counter() == 1);
  const at::Tensor moved = mean.clone();
  CHECK(moved.abs().max().item<float>() > 0);
  model.module->eval();
  model.forward(x);
  CHECK(counter() == 1);
  CHECK(at::equal(mean, moved));
}

TEST_CASE("channels_last gives the same logits") {
  c10::AutoGradMode no_grad(false);
  const Model model = resnet(50, {.num_classes = 4, .zero_init_residual = false});
  model.module->eval();
  const at::Tensor x = at::randn({2, 3, 32, 32});
  const at::Tensor plain = model.forward(x);
  for (auto& p : model.module->parameters())
    if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  // The tolerance allows for fp32 sums of up to 4,608 products in another order, through 50 layers.
  CHECK(at::allclose(model.forward(x.contiguous(at::MemoryFormat::ChannelsLast)), plain, 1e-3, 1e-3));
}

TEST_CASE("impossible options are refused") {
  CHECK(testing::error_of([] { resnet(20); }).kind() == ErrorKind::Usage);
  CHECK(testing::error_of([] { resnet(18, {.stem = "big"}); }).kind() == ErrorKind::Usage);
  CHECK(testing::error_of([] { resnet(18, {.num_classes = 0}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a residual network fuses, and keeps its value for any batch") {
  torch::manual_seed(7);
  c10::AutoGradMode no_grad(false);
  const FuseOptions any_time{
      .min_saving = -std::numeric_limits<double>::infinity(), .max_memory_overhead = 1e9, .max_error = 1e-5, .repeats = 1};
  for (const int64_t depth : {18, 50}) {
    CAPTURE(depth);
    const Model model = resnet(depth, {.num_classes = 10, .image_size = 32});
    for (const auto& [name, buffer] : buffers_of(*model.module)) {
      if (name.ends_with("running_mean")) at::Tensor(buffer).normal_(0, 0.1);
      if (name.ends_with("running_var")) at::Tensor(buffer).uniform_(0.5, 1.5);
    }
    model.module->eval();
    const at::Tensor x = at::randn({3, 3, 32, 32}), want = model.forward(x).clone();
    const auto fused = fuse(model, any_time);
    CAPTURE(fused.report.str());
    CHECK(fused.report.kept() == (depth == 18 ? 20 : 53));
    CHECK(fused.report.patterns.front().pattern == "Conv2d+BatchNorm+ReLU");
    CHECK(((fused.model.forward(x) - want).abs().max() / want.abs().max()).item<double>() < 1e-5);
  }
}

TEST_CASE("a block runs its convolutions in torchvision's order, the shortcut last") {
  for (const auto& [depth, expected] :
       std::map<int64_t, std::string>{{18, "conv1 conv2 downsample.0 "}, {50, "conv1 conv2 conv3 downsample.0 "}})
    for (const bool fused : {false, true}) {
      CAPTURE(depth);
      CAPTURE(fused);
      const Model model = resnet(depth, {.num_classes = 2, .fused_kernels = fused ? "auto" : "false"});
      const std::string block = "layer2.0.";
      std::string order;
      const OpObserver observer(parameters_of(*model.module), [&](const SeenOp& op) {
        const auto end = op.parameter.rfind(".weight");
        if (op.parameter.rfind(block, 0) != 0 || op.parameter.find(".bn") != std::string::npos ||
            op.parameter.find("downsample.1") != std::string::npos)
          return;
        order += op.parameter.substr(block.size(), end - block.size()) + " ";
      });
      model.forward(at::randn({2, 3, 32, 32}));
      CHECK(order == expected);
    }
}
