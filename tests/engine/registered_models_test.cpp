// Every registered model, in every precision of every available device, compared with itself on the CPU in fp32.
#include "testing.hpp"

#include <algorithm>
#include <cmath>

#include <torch/nn.h>

#include "models/image_classifiers.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;

namespace {

struct Numbers {
  at::Tensor logits;
  double loss = 0;
  bool overflowed = false;
  std::map<std::string, at::Tensor> gradients;
};

/// Reduces a model so that the largest ones take seconds: images of 64x64 (the last maps of a ResNet still have 2x2), and a shallow ViT.
/// Layers and names are those of the model.
PartConfig small(const std::string& name, const Parts& parts) {
  PartConfig part{.name = name, .options = {{"num_classes", 10}, {"image_size", 64}}};
  for (const auto& field : parts.models.describe(name))
    if (field.name == "depth") part.options.set("depth", ConfigNode(2));
  return part;
}

/// Runs one forward and backward from seeded weights. The last gamma of a residual block is not 0, so that every parameter has a gradient,
/// and is small, so that rounding does not grow from block to block.
Numbers run(const std::string& name, const Parts& parts, const std::string& mode, const Device& device) {
  torch::manual_seed(5);
  auto model = parts.models.make(small(name, parts), "model");
  const auto x = torch::randn({8, 3, 64, 64});
  const auto y = torch::tensor({1, 3, 5, 7, 0, 2, 4, 6});
  {
    const torch::NoGradGuard no_grad;
    for (const auto& p : parameters_of(*model.module))
      if (p.name.ends_with("bn3.weight") || p.name.ends_with("bn2.weight")) p.value.fill_(0.1);
  }
  const auto task = classifier(model);
  task->to(device.c10());
  task->set_training(true);
  const auto precision = make_precision({mode, {.init_scale = 1024}, {}}, device);
  const auto updated = precision->prepare(task->parameters(), norm_parameters_of(*model.module));
  StepOutput output;
  {
    const auto scope = precision->forward_scope();
    output = task->training_step(precision->cast_input(Batch(x.to(device.c10()), y.to(device.c10()))));
  }
  precision->scale_loss(output.loss).backward();
  precision->collect_gradients();
  precision->unscale_and_check(1);
  Numbers n{output.outputs.first().detach().cpu(), output.loss.item<double>(), precision->last_step_skipped(), {}};
  for (const auto& p : updated) n.gradients[p.name] = p.value.grad().detach().cpu().to(at::kDouble).flatten();
  return n;
}

/// Allowed deviations of a mode: relative difference of logits and loss, cosine of all gradients together, and for each single gradient its
/// cosine and the factor between the norms. fp32 on the CPU is the same computation, bit for bit; on another device, sums are ordered
/// differently and products may be rounded to 10 bits.
struct Tolerance {
  double value, cosine, each_cosine, each_norm;
};
Tolerance tolerance(const std::string& mode) {
  if (mode == "32-true") return {1e-3, 0.999, 0.95, 1.1};
  if (mode.starts_with("16-")) return {0.05, 0.98, 0.9, 1.25};
  return {0.15, 0.85, 0.5, 2};  // bf16: 8 bits of mantissa through up to 152 layers
}

void check_bits(const Numbers& ours, const Numbers& reference) {
  CHECK(torch::equal(ours.logits, reference.logits));
  CHECK(ours.loss == reference.loss);
  for (const auto& [key, gradient] : reference.gradients) {
    CAPTURE(key);
    CHECK(torch::equal(ours.gradients.at(key), gradient));
  }
}

void check_together(const Numbers& ours, const Numbers& reference, const Tolerance& t) {
  CHECK(((ours.logits - reference.logits).norm() / reference.logits.norm()).item<double>() < t.value);
  CHECK(ours.loss == doctest::Approx(reference.loss).epsilon(t.value));
  std::vector<at::Tensor> a, b;
  for (const auto& [key, gradient] : reference.gradients) {
    a.push_back(ours.gradients.at(key));
    b.push_back(gradient);
  }
  CHECK(torch::cosine_similarity(torch::cat(a), torch::cat(b), 0).item<double>() > t.cosine);
}

/// Checks each gradient on its own, because the total hides the small ones. Excludes a gradient whose reference has less than a thousandth
/// of the total norm: it is the rest of large terms that cancel, and in a low precision it is mostly their rounding.
void check_each(const Numbers& ours, const Numbers& reference, const Tolerance& t, const std::string& what) {
  double squares = 0;
  for (const auto& [key, gradient] : reference.gradients) squares += gradient.square().sum().item<double>();
  size_t compared = 0;
  double least_cosine = 1, largest_factor = 1;
  for (const auto& [key, theirs] : reference.gradients) {
    const auto& gradient = ours.gradients.at(key);
    const double norm = gradient.norm().item<double>(), expected = theirs.norm().item<double>();
    if (expected < 1e-3 * std::sqrt(squares)) continue;
    ++compared;
    const double cosine = gradient.dot(theirs).item<double>() / (norm * expected), factor = std::max(norm / expected, expected / norm);
    CAPTURE(key);
    CHECK(cosine > t.each_cosine);
    CHECK(factor < t.each_norm);
    least_cosine = std::min(least_cosine, cosine);
    largest_factor = std::max(largest_factor, factor);
  }
  CHECK(2 * compared > reference.gradients.size());
  MESSAGE(what, ": ", compared, " of ", reference.gradients.size(), " gradients compared, least cosine ", least_cosine,
          ", norms apart by at most ", largest_factor);
}

}  // namespace

TEST_CASE("logits, loss and gradients of every registered model agree with fp32 on the CPU") {
  at::set_num_threads(2);
  const auto parts = builtin_parts();
  int compared = 0;
  std::vector<Device> devices;
  for (const auto* backend : all_backends())
    if (backend->is_available()) devices.push_back(Device{backend->name(), 0});
  for (const auto& name : parts.models.names()) {
    if (!testing::classifies_images(parts.models, name) || name == "vit_b16_ascend") continue;  // it is vit_b16 with dropout
    ++compared;
    const auto reference = run(name, parts, "32-true", Device{});
    for (const auto& [key, gradient] : reference.gradients) {
      CAPTURE(name);
      CAPTURE(key);
      CHECK(gradient.norm().item<double>() > 0);
    }
    for (const auto& device : devices) {
      const bool slow = device.is_cpu() && !backend_of(device).capabilities(device).native_bf16;
      for (const std::string mode : {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"}) {
        // Without hardware units, the low precisions take minutes on the deep networks, so one network of each kind represents them.
        if (slow && mode != "32-true" && name != "resnet18" && name != "resnet50" && name != "vit_tiny_cifar10") continue;
        if (slow && mode == "16-mixed" && name == "resnet50") continue;
        // A low-precision parameter adds only its cast and its master's gradient, the same code for every network, so two networks
        // represent all.
        if (mode != "32-true" && mode.ends_with("-true") && name != "resnet18" && name != "vit_tiny_cifar10") continue;
        CAPTURE(name);
        CAPTURE(mode);
        CAPTURE(device.str());
        const auto n = run(name, parts, mode, device);
        CHECK_FALSE(n.overflowed);
        REQUIRE(n.gradients.size() == reference.gradients.size());
        if (device.is_cpu() && mode == "32-true") {
          check_bits(n, reference);
          continue;
        }
        check_together(n, reference, tolerance(mode));
        check_each(n, reference, tolerance(mode), name + " " + mode + " on " + device.str());
      }
    }
  }
  CHECK(compared == 12);  // five ResNets and seven vision transformers
}
