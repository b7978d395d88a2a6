// Cost and savings of activation checkpointing on the models of the library.
#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/device/live_bytes.hpp"
#include "npu_train/models/registry.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/precision/autocast.hpp"

using namespace npu_train;

namespace {

Model counted(Model model, std::vector<int>& calls) {
  calls.assign(model.blocks.size(), 0);
  for (size_t i = 0; i < model.blocks.size(); ++i)
    model.blocks[i].forward = [forward = model.blocks[i].forward, &calls, i](const ForwardContext& context, const at::Tensor& x) {
      ++calls[i];
      return forward(context, x);
    };
  return model;
}

struct Bytes {
  int64_t kept, peak, left;
};

// Runs a second pass. Returns the bytes after its forward, at the peak, and at the end.
Bytes bytes_of_pass(const Model& model, const at::Tensor& x, bool low) {
  const auto forward = [&] {
    const Autocast autocast(Device{}, at::kBFloat16, low);
    return model.forward(x).to(at::kFloat).square().sum();
  };
  forward().backward();
  Bytes bytes{};
  const LiveBytes live;
  {
    const at::Tensor loss = forward();
    bytes.kept = live.now();
    loss.backward();
  }
  bytes.left = live.now();
  bytes.peak = live.peak();
  return bytes;
}

struct Case {
  const char* name;
  int64_t image;
  double share;  // upper limit on the bytes kept between forward and backward, relative to the plain model
};

}  // namespace

TEST_CASE("each block runs twice a step, no more, and most of the activations are gone") {
  for (const auto& [name, image, share] : {Case{"resnet50", 64, 0.35}, Case{"resnet18", 64, 0.35}, Case{"vit_small", 64, 0.3}})
    for (const bool low : {false, true}) {
      CAPTURE(std::string(name));
      CAPTURE(low);
      ModelRegistry registry("model");
      add_builtin_models(registry);
      auto model = registry.make({.name = name, .options = {{"image_size", image}}, .mark = {}}, "model");
      model.module->train();
      for (auto& p : model.module->parameters())  // otherwise their gradients would be most of the memory at this size
        if (p.dim() > 1) p.requires_grad_(false);
      const at::Tensor x = at::rand({4, 3, image, image});
      const Bytes plain = bytes_of_pass(model, x, low);
      std::vector<int> calls;
      std::vector<bool> marks(model.blocks.size(), true);
      marks.back() = false;
      const Model checkpointed = with_checkpoints(counted(model, calls), marks);
      const Bytes less = bytes_of_pass(checkpointed, x, low);
      for (size_t i = 0; i + 1 < calls.size(); ++i) {
        CAPTURE(i);
        CHECK(calls[i] == 4);  // twice in each of the two passes
      }
      CHECK(static_cast<double>(less.kept) <= share * static_cast<double>(plain.kept));
      CHECK(less.peak < plain.peak);
      CHECK(less.left == 0);
    }
}
