// The fields of InternVlOptions, for it and for the presets that derive from it.
#pragma once

#include "llama_options.hpp"
#include "npu_train/models/internvl.hpp"

namespace npu_train::detail {

template <class T>
ConfigTable<T> internvl_fields(const std::string& title) {
  using O = InternVlOptions;
  ConfigTable<T> table(title);
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table
      .template field<int64_t>("image_size", &O::image_size, "pixels of a side; must be a multiple of patch_size * pixel_shuffle",
                               between(1, 1 << 14))
      .template field<int64_t>("patch_size", &O::patch_size, "pixels of a side of a patch", between(1, 1 << 14))
      .template field<int64_t>("vision_layers", &O::vision_layers, "blocks of the vision transformer", between(1, 4096))
      .template field<int64_t>("vision_heads", &O::vision_heads, "attention heads of the vision transformer", between(1, 4096))
      .template field<int64_t>("vision_dim", &O::vision_dim, "width of the vision transformer; must be a multiple of vision_heads",
                               between(1, 1 << 16))
      .template field<int64_t>("vision_hidden", &O::vision_hidden, "width of its MLPs; 0: four times vision_dim", between(0, 1 << 18))
      .template field<double>("layer_scale", &O::layer_scale, "initial value of the factors of its branches", more_than(0))
      .template field<int64_t>("pixel_shuffle", &O::pixel_shuffle, "patches of a side that become one vector: 1 / downsample_ratio",
                               between(1, 64))
      .template field<int64_t>("image_token", &O::image_token, "the token in whose place a vector of the image is put",
                               between(0, 1 << 24));
  table.synonym("img_context_token_id", "image_token");
  return llama_fields(std::move(table));
}

}  // namespace npu_train::detail
