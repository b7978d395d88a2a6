// The fields of ClipOptions, for it and for the presets that derive from it.
#pragma once

#include "activation.hpp"
#include "npu_train/models/clip.hpp"

namespace npu_train::detail {

template <class T>
ConfigTable<T> clip_fields(const std::string& title) {
  ConfigTable<T> table(title);
  using text = std::string;
  using O = ClipOptions;
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<int64_t>("image_size", &O::image_size, "pixels of a side; must be a multiple of patch_size", between(1, 1 << 14))
      .template field<int64_t>("patch_size", &O::patch_size, "pixels of a side of a patch", between(1, 1 << 14))
      .template field<int64_t>("vision_layers", &O::vision_layers, "blocks of the image tower", between(1, 4096))
      .template field<int64_t>("vision_heads", &O::vision_heads, "attention heads of the image tower", between(1, 4096))
      .template field<int64_t>("vision_dim", &O::vision_dim, "width of the image tower; must be a multiple of vision_heads",
                               between(1, 1 << 16))
      .template field<int64_t>("vision_hidden", &O::vision_hidden, "width of its MLPs; 0: four times vision_dim", between(0, 1 << 18))
      .template field<int64_t>("vocab_size", &O::vocab_size, "number of different tokens", between(1, 1 << 24))
      .template field<int64_t>("context", &O::context, "tokens of the longest text", between(1, 1 << 20))
      .template field<int64_t>("text_layers", &O::text_layers, "blocks of the text tower", between(1, 4096))
      .template field<int64_t>("text_heads", &O::text_heads, "attention heads of the text tower", between(1, 4096))
      .template field<int64_t>("text_dim", &O::text_dim, "width of the text tower; must be a multiple of text_heads", between(1, 1 << 16))
      .template field<int64_t>("text_hidden", &O::text_hidden, "width of its MLPs; 0: four times text_dim", between(0, 1 << 18))
      .template field<text>("activation", &O::activation, "of the MLPs; gelu in LAION's networks", one_of(activation_names()))
      .template field<double>("norm_eps", &O::norm_eps, "added to the variance in the norms", between(0, 1))
      .template field<int64_t>("end_token", &O::end_token,
                               "a text is read at its first token of this number; -1: at the first of its largest token",
                               between(-1, 1 << 24))
      .template field<int64_t>("projection", &O::projection, "size of the space of both features", between(1, 1 << 16))
      .template field<double>("max_scale", &O::max_scale,
                              "the factor of the products stays at most this: the parameter is clamped after each step; 0: no limit",
                              between(0, 1e9))
      .template field<text>("tower", &O::tower, "image, text: only this tower is called, for an export", one_of({"both", "image", "text"}))
      .template field<text>("weights", &O::weights, "file with initial weights: safetensors, .pth or a checkpoint")
      .template field<bool>("weights_strict", &O::weights_strict,
                            "true: weights of another network are an error; false: the matching tensors are loaded");
  table.synonym("pretrained", "weights").synonym("projection_dim", "projection").synonym("embed_dim", "projection");
  table.synonym("max_position_embeddings", "context").synonym("eos_token_id", "end_token");
  table.synonym("hidden_act", "activation").synonym("layer_norm_eps", "norm_eps");
  return table;
}

}  // namespace npu_train::detail
