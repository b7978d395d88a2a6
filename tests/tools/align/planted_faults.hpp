// Draws faults by seed over all layers of ResNet-50 and ViT-tiny, trains with and without each, and checks which layer the comparison of
// the two dumps names.
#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/models/vit.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/fault_injection.hpp"

namespace npu_train::testing {

// The reason why the second run rounds differently. Channels-last images use other kernels, and a fused network uses matrix products.
enum class Noise { None, Threads, NativeKernels, ChannelsLast, Fused };
inline const char* name_of(Noise noise) {
  constexpr const char* names[] = {"none", "threads", "native kernels", "channels last", "fused kernels"};
  return names[static_cast<size_t>(noise)];
}

struct FaultPlan {
  std::string network;               // vit_tiny | resnet50 | resnet50_fused
  uint64_t seed = 0;                 // of weights and images
  std::optional<FaultKind> kind{};   // none for a pair without a fault
  std::string parameter{}, layer{};  // where the fault is; `layer` as a dump names it, "" for the complete batch
  Noise noise = Noise::None;
  int steps = 1;
};

// The network that is trained.
class PlantedNet {
 public:
  static constexpr int64_t kSide = 64, kBatch = 8, kImages = 64, kClasses = 100;

  PlantedNet(const std::string& network, uint64_t seed, bool fused) : fused_(fused) {
    at::manual_seed(seed);
    if (network == "vit_tiny") {
      auto options = vit_tiny_options();
      options.image_size = kSide;
      options.num_classes = kClasses;
      model_ = vit(options, network);
    } else {
      model_ = resnet(
          50, {.num_classes = kClasses, .image_size = kSide, .zero_init_residual = false, .fused_kernels = fused ? "auto" : "false"});
    }
    parameters_ = parameters_of(*model_.module);
    make_lively();
  }

  const Model& model() const { return model_; }
  bool fused() const { return fused_; }
  const ParameterSet& parameters() const { return parameters_; }

  // Returns the name that a dump gives to a parameter's layer. If that layer contains other layers, it is the parameter's own name.
  std::string owner_of(const std::string& parameter) const {
    const auto layer = layer_of(parameter);
    const bool leaf = !layer.empty() && std::none_of(parameters_.begin(), parameters_.end(),
                                                     [&](const Parameter& p) { return layer_of(p.name).starts_with(layer + "."); });
    return leaf ? layer : parameter;
  }

  // Returns the name under which a dump has the gradient: the layer's, or the parameter's if it belongs to the model itself.
  static std::string graded_owner_of(const std::string& parameter) {
    const auto layer = layer_of(parameter);
    return layer.empty() ? parameter : layer;
  }

  // Returns whether a fault of this kind can be planted at this parameter. FaultInjector does not intercept a fused norm.
  bool can_have(FaultKind kind, const Parameter& p) const {
    if (kind == FaultKind::Gradient) return true;
    const auto& w = p.value;
    if (!p.name.ends_with("weight")) return false;
    const bool norm = w.dim() == 1;
    if (kind == FaultKind::Transpose) return (w.dim() == 4 && w.size(2) > 1) || ((w.dim() == 2 || w.dim() == 4) && w.size(0) == w.size(1));
    if (norm && fused_) return false;
    if (kind == FaultKind::Eps) return norm;
    if (kind == FaultKind::Bias) return parameters_.find(p.name.substr(0, p.name.size() - 6) + "bias") != nullptr;
    return in_operator(kind);
  }

 private:
  // Replaces initial weights that would hide a fault: omitting a bias of 0 changes nothing.
  void make_lively() {
    for (const auto& p : parameters_) {
      if (p.value.dim() == 1 && p.name.ends_with("weight"))
        p.value.data().uniform_(0.5, 1.5);
      else if (p.value.dim() == 1 || p.name == "class_token")
        p.value.data().normal_(0, 0.1);
    }
  }

  Model model_;
  ParameterSet parameters_;
  bool fused_;
};

// Draws the `index`-th fault of `seed`. For every second fault, the two runs also differ in rounding.
inline FaultPlan draw_fault(uint64_t seed, uint64_t index) {
  Philox random(derive_seed(seed, "planted fault", index));
  const Noise noises[] = {Noise::NativeKernels, Noise::ChannelsLast};
  FaultPlan plan;
  plan.seed = derive_seed(seed, "planted state", index);
  plan.noise = index % 2 == 0 ? Noise::None : noises[random.below(2)];
  for (;;) {
    const auto drawn = random.below(4);
    plan.network = drawn < 2 ? "vit_tiny" : drawn == 2 ? "resnet50" : "resnet50_fused";
    plan.kind = kFaultKinds[random.below(std::size(kFaultKinds))];
    if (*plan.kind == FaultKind::Shuffle) return plan;
    const PlantedNet net(plan.network, plan.seed, plan.network == "resnet50_fused");
    std::vector<std::string> able;
    for (const auto& p : net.parameters())
      if (net.can_have(*plan.kind, p)) able.push_back(p.name);
    if (able.empty()) continue;
    plan.parameter = able[random.below(static_cast<uint32_t>(able.size()))];
    plan.layer = plan.kind == FaultKind::Gradient ? PlantedNet::graded_owner_of(plan.parameter) : net.owner_of(plan.parameter);
    return plan;
  }
}

// Draws a pair without a fault: every second pair is equal, and the others take turns with the kinds of noise.
inline FaultPlan draw_pair(uint64_t seed, uint64_t index) {
  Philox random(derive_seed(seed, "planted pair", index));
  const char* networks[] = {"vit_tiny", "resnet50", "resnet50_fused"};
  const Noise noises[] = {Noise::Threads, Noise::NativeKernels, Noise::ChannelsLast, Noise::Fused};
  FaultPlan plan{.network = networks[random.below(3)], .seed = derive_seed(seed, "planted pair state", index)};
  if (index % 2 == 1) plan.noise = noises[index / 2 % std::size(noises)];
  if (plan.noise == Noise::Fused) plan.network = "resnet50";
  // one step with noise, since after an update the weights would also differ by the effect of ReLU's kinks on the gradients
  plan.steps = plan.noise == Noise::None ? 2 : 1;
  return plan;
}

// One of the two runs of a plan: `faulty` has the fault, and the other one has the noise.
class PlantedRun {
 public:
  PlantedRun(const FaultPlan& plan, bool faulty)
      : plan_(plan),
        kind_(faulty ? plan.kind : std::nullopt),
        noise_(faulty ? Noise::None : plan.noise),
        net_(plan.network, plan.seed, plan.network == "resnet50_fused" || noise_ == Noise::Fused) {
    if (const auto* p = net_.parameters().find(plan.parameter)) parameter_ = p->value;
    if (kind_ == FaultKind::Transpose) {
      const at::NoGradGuard no_grad;
      const bool taps = parameter_.dim() == 4 && parameter_.size(2) > 1;
      parameter_.copy_((taps ? parameter_.transpose(2, 3) : parameter_.transpose(0, 1)).clone());
    }
    if (kind_ == FaultKind::Gradient) parameter_.register_hook([](const at::Tensor& g) { return at::zeros_like(g); });
  }

  void dump(const std::filesystem::path& dir, const std::string& task) {
    const Settings settings(noise_);
    Sgd sgd(net_.parameters(), {.lr = 1e-5});
    const bool alike = plan_.noise == Noise::None || noise_ == Noise::None;
    Dumper dumper({.task = task, .dir = dir.string()}, dumped_model(*net_.model().module), 0,
                  {{"device", alike ? "cpu" : "elsewhere"}, {"precision", "32-true"}, {"fused_kernels", net_.fused() ? "auto" : "false"}});
    dumper.watch(sgd);
    for (int step = 0; step < plan_.steps; ++step) {
      const auto [x, target] = batch(step);
      sgd.zero_grad();
      dumper.start();
      const at::Tensor loss = at::cross_entropy_loss(forward(x), target);
      dumper.loss(loss);
      loss.backward();
      dumper.stop();
      sgd.step();
      dumper.step();
    }
  }

 private:
  // Settings of the process, restored at the end.
  class Settings {
   public:
    explicit Settings(Noise noise) : threads_(at::get_num_threads()) {
      if (noise == Noise::Threads) at::set_num_threads(threads_ == 1 ? 2 : 1);
      if (noise == Noise::NativeKernels) set_fast(false);
    }
    ~Settings() {
      at::set_num_threads(threads_);
      set_fast(true);
    }
    Settings(const Settings&) = delete;
    Settings& operator=(const Settings&) = delete;

   private:
    static void set_fast(bool fast) {
      at::globalContext().setUserEnabledMkldnn(fast);
      at::globalContext().setSDPUseFlash(fast);
    }
    int threads_;
  };

  at::Tensor forward(const at::Tensor& x) {
    if (!kind_ || !in_operator(*kind_)) return net_.model().forward(x);
    const FaultInjector injector(*kind_, parameter_);
    at::Tensor y = net_.model().forward(x);
    check(injector.hits() == 1, ErrorKind::Internal, "planted faults", name_of(*kind_), " at ", plan_.parameter, ": ", injector.hits(),
          " calls were changed instead of one");
    return y;
  }

  std::pair<at::Tensor, at::Tensor> batch(int step) const {
    at::manual_seed(plan_.seed + 1);
    const at::Tensor images = at::randn({PlantedNet::kImages, 3, PlantedNet::kSide, PlantedNet::kSide});
    const at::Tensor targets = at::randint(PlantedNet::kClasses, {PlantedNet::kImages}, at::kLong);
    at::manual_seed(plan_.seed + (kind_ == FaultKind::Shuffle ? 3 : 2));
    const at::Tensor chosen = at::randperm(PlantedNet::kImages, at::kLong).narrow(0, step * PlantedNet::kBatch, PlantedNet::kBatch);
    const auto format = noise_ == Noise::ChannelsLast ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    return {images.index_select(0, chosen).contiguous(format), targets.index_select(0, chosen)};
  }

  const FaultPlan& plan_;
  std::optional<FaultKind> kind_;
  Noise noise_;
  PlantedNet net_;
  at::Tensor parameter_;
};

inline DumpComparison compare_runs(const FaultPlan& plan, const std::filesystem::path& dir, const std::string& task) {
  for (const bool faulty : {true, false}) {
    std::filesystem::remove_all(dir / (faulty ? "a" : "b"));
    PlantedRun(plan, faulty).dump(dir / (faulty ? "a" : "b"), task);
  }
  return compare_dumps(dir / "a", dir / "b");
}

// Returns whether the comparison names what was planted.
inline bool is_right(const FaultPlan& plan, const Divergence& first) {
  if (!first.found) return false;
  if (plan.kind == FaultKind::Shuffle)
    return first.cause == Divergence::Cause::Input && first.layer == (plan.network == "vit_tiny" ? "conv_proj" : "conv1");
  return first.layer == plan.layer && (plan.kind != FaultKind::Gradient || first.cause == Divergence::Cause::Gradient);
}

// Returns whether there is no false alarm: the runs agree, and runs without noise have no difference.
inline bool is_quiet(const FaultPlan& plan, const DumpComparison& result) {
  return result.agrees && (plan.noise != Noise::None || !result.first.found);
}

}  // namespace npu_train::testing
