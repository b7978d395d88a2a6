#include "npu_train/models/resnet.hpp"

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/container/modulelist.h>

#include <array>
#include <map>

#include "models/blocks/norm_act.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layers.hpp"

namespace npu_train {
namespace {

using detail::BatchNorm2d;

std::shared_ptr<Conv2d> convolution(torch::nn::Module& owner, const std::string& name, const Conv2d::Options& options) {
  auto conv = owner.register_module(name, std::make_shared<Conv2d>(options));
  init::kaiming_normal_fan_out_(conv->weight);
  return conv;
}

std::shared_ptr<BatchNorm2d> norm(torch::nn::Module& owner, const std::string& name, int64_t channels, bool fused) {
  return owner.register_module(name, std::make_shared<BatchNorm2d>(channels, fused));
}

// Options that all blocks of a network share.
struct Style {
  bool zero_init;
  bool fused;
};

// The shortcut of a block that changes the shape: a 1x1 convolution and a norm, with the child names "0" and "1".
class Downsample : public torch::nn::Module {
 public:
  Downsample(int64_t in, int64_t out, int64_t stride, const Style& style) : torch::nn::Module("Downsample") {
    conv_ = convolution(*this, "0", {.in = in, .out = out, .kernel = 1, .stride = stride, .lowered = style.fused});
    bn_ = norm(*this, "1", out, style.fused);
  }
  at::Tensor forward(const at::Tensor& x) { return bn_->norm_act(conv_->forward(x), {}, false); }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> bn_;
};

class ResidualBlock : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(const at::Tensor& x) = 0;

 protected:
  // Adds the shortcut. Call it last, so that the names are registered in torchvision's order.
  void add_shortcut(int64_t in, int64_t out, int64_t stride, const Style& style) {
    if (stride != 1 || in != out) downsample_ = register_module("downsample", std::make_shared<Downsample>(in, out, stride, style));
  }
  at::Tensor shortcut(const at::Tensor& x) { return downsample_ ? downsample_->forward(x) : x; }

 private:
  std::shared_ptr<Downsample> downsample_;
};

// A block of two 3x3 convolutions.
class BasicBlock final : public ResidualBlock {
 public:
  static constexpr int64_t expansion = 1;
  BasicBlock(int64_t in, int64_t width, int64_t stride, const Style& style) : ResidualBlock("BasicBlock") {
    conv1_ = convolution(*this, "conv1", {.in = in, .out = width, .kernel = 3, .stride = stride, .padding = 1, .lowered = style.fused});
    bn1_ = norm(*this, "bn1", width, style.fused);
    conv2_ = convolution(*this, "conv2", {.in = width, .out = width, .kernel = 3, .padding = 1, .lowered = style.fused});
    bn2_ = norm(*this, "bn2", width, style.fused);
    add_shortcut(in, width, stride, style);
    if (style.zero_init) init::zeros_(bn2_->weight);
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = bn1_->norm_act(conv1_->forward(x), {}, true);
    y = conv2_->forward(y);  // computed before the shortcut, because the evaluation order of arguments is unspecified
    return bn2_->norm_act(y, shortcut(x), true);
  }

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_;
};

// A block of three convolutions: 1x1, 3x3, and 1x1 to four times the width.
class Bottleneck final : public ResidualBlock {
 public:
  static constexpr int64_t expansion = 4;
  Bottleneck(int64_t in, int64_t width, int64_t stride, const Style& style) : ResidualBlock("Bottleneck") {
    conv1_ = convolution(*this, "conv1", {.in = in, .out = width, .lowered = style.fused});
    bn1_ = norm(*this, "bn1", width, style.fused);
    conv2_ = convolution(*this, "conv2", {.in = width, .out = width, .kernel = 3, .stride = stride, .padding = 1, .lowered = style.fused});
    bn2_ = norm(*this, "bn2", width, style.fused);
    conv3_ = convolution(*this, "conv3", {.in = width, .out = expansion * width, .lowered = style.fused});
    bn3_ = norm(*this, "bn3", expansion * width, style.fused);
    add_shortcut(in, expansion * width, stride, style);
    if (style.zero_init) init::zeros_(bn3_->weight);
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = bn1_->norm_act(conv1_->forward(x), {}, true);
    y = bn2_->norm_act(conv2_->forward(y), {}, true);
    y = conv3_->forward(y);  // computed before the shortcut, because the evaluation order of arguments is unspecified
    return bn3_->norm_act(y, shortcut(x), true);
  }

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_, conv3_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_, bn3_;
};

struct Depth {
  bool bottleneck;
  std::array<int64_t, 4> blocks;
};
const std::map<int64_t, Depth>& depths() {
  static const std::map<int64_t, Depth> table = {{18, {false, {2, 2, 2, 2}}},
                                                 {34, {false, {3, 4, 6, 3}}},
                                                 {50, {true, {3, 4, 6, 3}}},
                                                 {101, {true, {3, 4, 23, 3}}},
                                                 {152, {true, {3, 8, 36, 3}}}};
  return table;
}

class ResNet : public torch::nn::Module {
 public:
  ResNet(const Depth& depth, const ResNetOptions& o) : torch::nn::Module("ResNet"), small_(o.stem == "small") {
    const Style style{.zero_init = o.zero_init_residual, .fused = o.fused_kernels == "auto"};
    conv1_ =
        small_ ? convolution(*this, "conv1", {.in = o.channels, .out = 64, .kernel = 3, .padding = 1, .lowered = style.fused})
               : convolution(*this, "conv1", {.in = o.channels, .out = 64, .kernel = 7, .stride = 2, .padding = 3, .lowered = style.fused});
    bn1_ = norm(*this, "bn1", 64, style.fused);
    int64_t in = 64;
    for (int64_t layer = 0; layer < 4; ++layer) in = add_layer(depth, layer, in, style);
    fc_ = register_module("fc", std::make_shared<Linear>(in, o.num_classes));
    init::kaiming_uniform_fan_in_(fc_->weight);
    init::uniform_(fc_->bias, 1.0 / std::sqrt(static_cast<double>(in)));
  }

  at::Tensor stem(const at::Tensor& x) {
    const at::Tensor y = bn1_->norm_act(conv1_->forward(x), {}, true);
    return small_ ? y : at::max_pool2d(y, {3, 3}, {2, 2}, {1, 1});
  }
  at::Tensor head(const at::Tensor& x) { return fc_->forward(x.mean({2, 3})); }

  std::vector<std::pair<std::string, std::shared_ptr<ResidualBlock>>> residual_blocks;

 private:
  int64_t add_layer(const Depth& depth, int64_t layer, int64_t in, const Style& style) {
    const std::string name = "layer" + std::to_string(layer + 1);
    const int64_t width = int64_t{64} << layer;
    auto list = register_module(name, std::make_shared<torch::nn::ModuleListImpl>());
    for (int64_t i = 0; i < depth.blocks[layer]; ++i) {
      const int64_t stride = layer > 0 && i == 0 ? 2 : 1;
      std::shared_ptr<ResidualBlock> block;
      if (depth.bottleneck)
        block = std::make_shared<Bottleneck>(in, width, stride, style);
      else
        block = std::make_shared<BasicBlock>(in, width, stride, style);
      list->push_back(block);
      residual_blocks.emplace_back(name + "." + std::to_string(i), block);
      in = width * (depth.bottleneck ? Bottleneck::expansion : BasicBlock::expansion);
    }
    return in;
  }

  bool small_;
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace

const ConfigTable<ResNetOptions>& ResNetOptions::config_table() {
  static const auto table =
      ConfigTable<ResNetOptions>("model resnet")
          .field("num_classes", &ResNetOptions::num_classes, "outputs of the head", between(1, 1 << 24))
          .field("image_size", &ResNetOptions::image_size, "pixels of a side, for summaries and benchmarks; the network accepts any size",
                 between(1, 1 << 14))
          .field("channels", &ResNetOptions::channels, "channels of the input", between(1, 4096))
          .field("stem", &ResNetOptions::stem, "imagenet: 7x7 stride 2 and max pooling; small: 3x3 stride 1, for 32x32 images",
                 one_of({"imagenet", "small"}))
          .field("zero_init_residual", &ResNetOptions::zero_init_residual,
                 "initialises the last gamma of each block with 0, for more stable first epochs")
          .field("fused_kernels", &ResNetOptions::fused_kernels,
                 "auto: norm, shortcut and ReLU as one kernel and convolutions as matrix products, if that is faster; false: PyTorch's "
                 "operations",
                 one_of({"auto", "false"}))
          .field(
              "weights", &ResNetOptions::weights,
              "file with initial weights: safetensors, .pth or a checkpoint; a head with a different size keeps its fresh initialisation")
          .field("weights_strict", &ResNetOptions::weights_strict,
                 "true: weights of another network are an error; false: the matching tensors are loaded")
          .synonym("classes", "num_classes")
          .synonym("pretrained", "weights")
          .synonym("in_channels", "channels")
          .synonym("in_chans", "channels");
  return table;
}

Model resnet(int64_t depth, const ResNetOptions& options) {
  const auto found = depths().find(depth);
  check(found != depths().end(), ErrorKind::Usage, "resnet", "no residual network of depth ", depth, "; allowed: 18, 34, 50, 101, 152");
  check(options.stem == "imagenet" || options.stem == "small", ErrorKind::Usage, "resnet", "stem '", options.stem,
        "'; allowed: imagenet, small");
  check(options.fused_kernels == "auto" || options.fused_kernels == "false", ErrorKind::Usage, "resnet", "fused_kernels '",
        options.fused_kernels, "'; allowed: auto, false");
  check(options.num_classes > 0 && options.channels > 0, ErrorKind::Usage, "resnet", "num_classes ", options.num_classes, ", channels ",
        options.channels, "; both must be at least 1");
  auto net = std::make_shared<ResNet>(found->second, options);
  Model model{.name = "resnet" + std::to_string(depth),
              .module = net,
              .forward = {},
              .inputs = {image_input(options.channels, options.image_size)},
              .num_classes = options.num_classes,
              .head = "fc",
              .weights = options.weights,
              .weights_strict = options.weights_strict,
              .capturable = true,
              .blocks = {}};
  model.blocks.push_back({"stem", [net](const at::Tensor& x) { return net->stem(x); }});
  for (const auto& [name, block] : net->residual_blocks)
    model.blocks.push_back({name, [net, block = block](const at::Tensor& x) { return block->forward(x); }});
  model.blocks.push_back({"head", [net](const at::Tensor& x) { return net->head(x); }});
  return chain_blocks(std::move(model));
}

}  // namespace npu_train
