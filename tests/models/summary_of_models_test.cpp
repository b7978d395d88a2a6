// FLOPs and shapes of the built-in networks, compared with published numbers.
#include "testing.hpp"

#include <torch/nn/module.h>

#include "npu_train/models/gpt2.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/models/vit.hpp"
#include "npu_train/nn/summary.hpp"

using namespace npu_train;

TEST_CASE("resnet50 at 224") {
  const Model model = resnet(50);
  const auto s = summarize(model);
  CHECK(s.parameters == 25557032);
  CHECK(s.flops == 2 * int64_t{4089184256});  // 4.09 billion multiply-adds
  CHECK(flops_per_sample(model) == s.flops);
  REQUIRE(s.blocks.size() == 18);
  CHECK(s.blocks[0].output_shape == std::vector<int64_t>{1, 64, 56, 56});
  CHECK(s.blocks[1].name == "layer1.0");
  CHECK(s.blocks[1].parameters == 75008);
  CHECK(s.blocks[17].output_shape == std::vector<int64_t>{1, 1000});
  CHECK(s.layers.front().name == "conv1");
  CHECK(s.layers.size() == 107);  // 53 convolutions, 53 norms, the head
  for (const auto& layer : s.layers) CHECK_FALSE(layer.output_shape.empty());
}

TEST_CASE("the blocks have all parameters, each once") {
  const std::vector<std::pair<Model, std::vector<std::pair<std::string, int64_t>>>> models = {
      {resnet(18, {.num_classes = 10, .image_size = 32}), {{"stem", 3 * 64 * 49 + 128}, {"head", 512 * 10 + 10}}},
      {vit(vit_tiny_cifar10_options(), "vit_tiny_cifar10"), {{"head", 2 * 192 + 192 * 10 + 10}}},
      {gpt2(gpt2_tiny_options(), "gpt2_tiny"), {{"embed", (256 + 64) * 64}, {"head", 2 * 64}}}};
  for (const auto& [model, blocks] : models) {
    CAPTURE(model.name);
    const auto s = summarize(model);
    int64_t sum = 0;
    for (const auto& block : s.blocks) {
      sum += block.parameters;
      for (const auto& [name, parameters] : blocks)
        if (block.name == name) CHECK_MESSAGE(block.parameters == parameters, name);
      CHECK_MESSAGE(block.parameters > 0, block.name);
    }
    CHECK(sum == s.parameters);
  }
}

TEST_CASE("FLOPs do not depend on the memory layout or on how attention is projected") {
  const Model model = resnet(18, {.num_classes = 10, .image_size = 32});
  const int64_t plain = flops_per_sample(model);
  for (auto& p : model.module->parameters())
    if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(flops_per_sample(model) == plain);

  VitOptions o = vit_tiny_cifar10_options();
  const int64_t fused = flops_per_sample(vit(o));
  o.qkv = "split";
  CHECK(flops_per_sample(vit(o)) == fused);
  const int64_t n = 65, d = 192;
  CHECK(fused == 2 * (64 * 48 * d + 12 * (n * d * 12 * d + 2 * n * n * d) + d * 10));
}

TEST_CASE("rows of a ViT") {
  const auto s = summarize(vit(vit_tiny_cifar10_options(), "vit_tiny_cifar10"));
  const auto find = [&](const std::string& name) -> const LayerSummary& {
    for (const auto& layer : s.layers)
      if (layer.name == name) return layer;
    FAIL("no row ", name);
    return s.layers.front();
  };
  CHECK(find("encoder.layers.encoder_layer_0 (attention)").flops == 2 * 2 * 65 * 65 * 192);
  CHECK(find("encoder.layers.encoder_layer_0.self_attention").output_shape == std::vector<int64_t>{1, 65, 576});
  CHECK(find("encoder.layers.encoder_layer_3.mlp.0").flops == 2 * 65 * 192 * 768);
  CHECK(find("heads.head").output_shape == std::vector<int64_t>{1, 10});
  CHECK(s.str().find("encoder.layers.encoder_layer_11") != std::string::npos);
  CHECK(s.str(true).find("mlp.3") != std::string::npos);
}
