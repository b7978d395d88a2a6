#include "npu_train/models/vit.hpp"

namespace npu_train {
namespace {

VitOptions sized(int64_t patch, int64_t dim, int64_t depth, int64_t heads) {
  VitOptions o;
  o.patch_size = patch;
  o.dim = dim;
  o.depth = depth;
  o.heads = heads;
  return o;
}

}  // namespace

const ConfigTable<VitOptions>& VitOptions::config_table() {
  using T = VitOptions;
  static const auto table =
      ConfigTable<T>("model vit")
          .field("num_classes", &T::num_classes, "outputs of the head", between(1, 1 << 24))
          .field("image_size", &T::image_size, "pixels of a side; must be a multiple of patch_size", between(1, 1 << 14))
          .field("channels", &T::channels, "channels of the input", between(1, 4096))
          .field("patch_size", &T::patch_size, "pixels of a side of a patch", between(1, 1 << 14))
          .field("dim", &T::dim, "width of a token; must be a multiple of heads", between(1, 1 << 16))
          .field("depth", &T::depth, "blocks", between(1, 4096))
          .field("heads", &T::heads, "number of attention heads", between(1, 4096))
          .field("mlp_dim", &T::mlp_dim, "width inside the MLP; 0: four times dim", between(0, 1 << 18))
          .field("dropout", &T::dropout, "rate after positions, attention projection and MLP layers", between(0, 0.99))
          .field("attention_dropout", &T::attention_dropout, "rate on the attention weights", between(0, 0.99))
          .field("drop_path", &T::drop_path, "stochastic depth of the last block, rising from 0 at the first", between(0, 0.99))
          .field("norm_eps", &T::norm_eps, "added to the variance in layer normalisation; 1e-12 in many files of Hugging Face",
                 between(0, 1))
          .field("qkv", &T::qkv, "one projection for query, key and value, or three (NPUs prefer split)", one_of({"fused", "split"}))
          .field("activation", &T::activation, "of the MLP", one_of({"gelu", "quick_gelu", "relu", "silu"}))
          .field("gelu", &T::gelu, "form of the activation gelu; exact: by erf; tanh: the approximation", one_of({"exact", "tanh"}))
          .field("layer_scale", &T::layer_scale,
                 "initial value of the factors of both branches of a block, as in DeiT-III and DINOv2; 0: there are none", between(0, 1e6))
          .field("qk_norm", &T::qk_norm, "normalises the queries and keys of each head")
          .field("registers", &T::registers, "learned tokens after the class token, without positions", between(0, 1 << 12))
          .field("distillation", &T::distillation,
                 "of DeiT; token: a distillation token, which is not read; heads: a second head reads it, and the logits are the "
                 "mean of both",
                 one_of({"none", "token", "heads"}))
          .field("head_init", &T::head_init, "how the weights of the head are drawn; trunc_normal: with a deviation of 0.02; its bias is 0",
                 one_of({"trunc_normal", "xavier_uniform"}))
          .field("attention_mask", &T::attention_mask, "causal: a token attends to itself and to earlier tokens",
                 one_of({"none", "causal"}))
          .field("fused_kernels", &T::fused_kernels,
                 "auto: products with weights prepacked for oneDNN, and attention's bf16 backward in fp32, if that is faster; "
                 "false: PyTorch's operators",
                 one_of({"auto", "false"}))
          .field(
              "weights", &T::weights,
              "file with initial weights: safetensors, .pth or a checkpoint; a head with a different size keeps its fresh initialisation")
          .field("weights_strict", &T::weights_strict,
                 "true: weights of another network are an error; false: the matching tensors are loaded")
          .synonym("classes", "num_classes")
          .synonym("pretrained", "weights")
          .synonym("in_channels", "channels")
          .synonym("in_chans", "channels")
          .synonym("embed_dim", "dim")
          .synonym("hidden_dim", "dim")
          .synonym("num_heads", "heads")
          .synonym("num_layers", "depth")
          .synonym("layer_norm_eps", "norm_eps")
          .synonym("drop_path_rate", "drop_path")
          .synonym("img_size", "image_size")
          .synonym("init_values", "layer_scale")
          .synonym("layerscale_value", "layer_scale")
          .synonym("reg_tokens", "registers")
          .synonym("num_register_tokens", "registers")
          .synonym("hidden_act", "activation")
          .synonym("act_layer", "activation");
  return table;
}

VitOptions vit_tiny_options() { return sized(16, 192, 12, 3); }
VitOptions vit_small_options() { return sized(16, 384, 12, 6); }
VitOptions vit_b16_options() { return sized(16, 768, 12, 12); }
VitOptions vit_b16_ascend_options() {
  VitOptions o = vit_b16_options();
  o.qkv = "split";
  o.gelu = "tanh";
  o.dropout = 0.1;
  o.head_init = "xavier_uniform";
  return o;
}
VitOptions vit_b32_options() { return sized(32, 768, 12, 12); }
VitOptions vit_l16_options() { return sized(16, 1024, 24, 16); }

VitOptions vit_tiny_cifar10_options() {
  VitOptions o = sized(4, 192, 12, 3);
  o.image_size = 32;
  o.num_classes = 10;
  return o;
}

}  // namespace npu_train
