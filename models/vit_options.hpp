// The fields of VitOptions, for it and for the presets that derive from it.
#pragma once

#include "npu_train/models/vit.hpp"

namespace npu_train::detail {

template <class T>
ConfigTable<T> vit_fields(const std::string& title) {
  ConfigTable<T> table(title);
  using text = std::string;
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<int64_t>("num_classes", &VitOptions::num_classes, "outputs of the head", between(1, 1 << 24))
      .template field<int64_t>("image_size", &VitOptions::image_size, "pixels of a side; must be a multiple of patch_size",
                               between(1, 1 << 14))
      .template field<int64_t>("channels", &VitOptions::channels, "channels of the input", between(1, 4096))
      .template field<int64_t>("patch_size", &VitOptions::patch_size, "pixels of a side of a patch", between(1, 1 << 14))
      .template field<int64_t>("dim", &VitOptions::dim, "width of a token; must be a multiple of heads", between(1, 1 << 16))
      .template field<int64_t>("depth", &VitOptions::depth, "blocks", between(1, 4096))
      .template field<int64_t>("heads", &VitOptions::heads, "number of attention heads", between(1, 4096))
      .template field<int64_t>("mlp_dim", &VitOptions::mlp_dim, "width inside the MLP; 0: four times dim", between(0, 1 << 18))
      .template field<double>("dropout", &VitOptions::dropout, "rate after positions, attention projection and MLP layers",
                              between(0, 0.99))
      .template field<double>("attention_dropout", &VitOptions::attention_dropout, "rate on the attention weights", between(0, 0.99))
      .template field<double>("drop_path", &VitOptions::drop_path, "stochastic depth of the last block, rising from 0 at the first",
                              between(0, 0.99))
      .template field<double>("norm_eps", &VitOptions::norm_eps,
                              "added to the variance in layer normalisation; 1e-12 in many files of Hugging Face", between(0, 1))
      .template field<text>("qkv", &VitOptions::qkv, "one projection for query, key and value, or three (NPUs prefer split)",
                            one_of({"fused", "split"}))
      .template field<text>("activation", &VitOptions::activation, "of the MLP", one_of({"gelu", "quick_gelu", "relu", "silu"}))
      .template field<text>("gelu", &VitOptions::gelu, "form of the activation gelu; exact: by erf; tanh: the approximation",
                            one_of({"exact", "tanh"}))
      .template field<double>("layer_scale", &VitOptions::layer_scale,
                              "initial value of the factors of both branches of a block, as in DeiT-III and DINOv2; 0: there are none",
                              between(0, 1e6))
      .template field<bool>("qk_norm", &VitOptions::qk_norm, "normalises the queries and keys of each head")
      .template field<int64_t>("registers", &VitOptions::registers, "learned tokens after the class token, without positions",
                               between(0, 1 << 12))
      .template field<text>(
          "distillation", &VitOptions::distillation,
          "of DeiT; token: a distillation token, which is not read; heads: a second head reads it, and the logits are the "
          "mean of both",
          one_of({"none", "token", "heads"}))
      .template field<text>("attention_mask", &VitOptions::attention_mask, "causal: a token attends to itself and to earlier tokens",
                            one_of({"none", "causal"}))
      .template field<text>("fused_kernels", &VitOptions::fused_kernels,
                            "auto: products with weights prepacked for oneDNN, and attention's bf16 backward in fp32, if that is faster; "
                            "false: PyTorch's operators",
                            one_of({"auto", "false"}))
      .template field<text>(
          "weights", &VitOptions::weights,
          "file with initial weights: safetensors, .pth or a checkpoint; a head with a different size keeps its fresh initialisation")
      .template field<bool>("weights_strict", &VitOptions::weights_strict,
                            "true: weights of another network are an error; false: the matching tensors are loaded");
  table.synonym("classes", "num_classes")
      .synonym("pretrained", "weights")
      .synonym("in_channels", "channels")
      .synonym("in_chans", "channels");
  table.synonym("embed_dim", "dim").synonym("hidden_dim", "dim").synonym("num_heads", "heads").synonym("num_layers", "depth");
  table.synonym("layer_norm_eps", "norm_eps").synonym("drop_path_rate", "drop_path").synonym("img_size", "image_size");
  table.synonym("init_values", "layer_scale").synonym("layerscale_value", "layer_scale").synonym("reg_tokens", "registers");
  table.synonym("num_register_tokens", "registers").synonym("hidden_act", "activation").synonym("act_layer", "activation");
  return table;
}

}  // namespace npu_train::detail
