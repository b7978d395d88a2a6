/// InternVL (Chen et al., "InternVL: Scaling up Vision Foundation Models and Aligning for Generic Visual-Linguistic Tasks", CVPR 2024; "How
/// Far Are We to GPT-4V?", 2024): a vision transformer whose patches, four of them joined into one vector, are the image in a text,
/// and a Llama that continues this text. Parameters: vision.{class_embedding, patch, position_embedding, blocks.#}, projector.{norm, fc1,
/// fc2}, language.{token_embedding, blocks.#, norm, head}. A block of the vision transformer has ln_1, attention.{q_proj, k_proj, v_proj,
/// proj}, scale_1, ln_2, mlp.{fc1, fc2}, scale_2; one of the language model those of a Llama (llama.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/models/llama.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// The language model's sizes are those of LlamaOptions, under the same keys.
struct InternVlOptions : LlamaOptions {
  int64_t image_size = 448;      ///< pixels of a side; a multiple of patch_size * pixel_shuffle
  int64_t patch_size = 14;       ///< pixels of a side of a patch
  int64_t vision_layers = 24;    ///< blocks of the vision transformer
  int64_t vision_heads = 16;     ///< its attention heads
  int64_t vision_dim = 1024;     ///< its width; a multiple of vision_heads
  int64_t vision_hidden = 0;     ///< width of its MLPs; 0: four times vision_dim
  double layer_scale = 0.1;      ///< initial value of the factors of its branches
  int64_t pixel_shuffle = 2;     ///< patches of a side that become one vector; 1 / downsample_ratio of the published configuration
  int64_t image_token = 31999;   ///< the token IMG_CONTEXT, in whose place a vector of the image is put
  int64_t image_tokens() const;  ///< vectors of an image: (image_size / patch_size / pixel_shuffle)^2
  static const ConfigTable<InternVlOptions>& config_table();
};

/// For images of 32 x 32 and bytes as tokens, of which no text has 255: patch_size 4, 16 vectors of an image; both networks with 2 layers
/// and width 64, context 64; image_token 255, layer_scale 1.
InternVlOptions internvl_tiny_options();

/// Inputs: "input", images [batch, 3, image_size, image_size], and "tokens", ids int64 [batch, tokens] of 1 to `context` tokens, among them
/// image_tokens() times the image_token: the k-th of them becomes the k-th vector of the image, whose patches are read row by row (the form
/// "v2" of the published pixel_shuffle). Output: logits [batch, tokens, vocab_size] of the next token. The class token of the vision
/// transformer is dropped. Weights are drawn from the default generator: N(0, 0.02^2), norms 1, biases 0. Blocks: vision.embed,
/// vision.blocks.0 ..., projector, language.embed, language.blocks.0 ..., language.head. Error(Usage) for sizes that do not divide; on a
/// CPU Error(Data) for an id outside the vocabulary and for a text with more image tokens than an image has.
Model internvl(const InternVlOptions& options, const std::string& name = "internvl");

/// The image tokens in the texts of a model made by internvl(); nothing for another model.
struct ImagePlaces {
  int64_t token = 0, count = 0;
};
std::optional<ImagePlaces> image_places(const Model& model);

/// The model's decoder with an image [3, image_size, image_size] in place of the image tokens: its input is token ids [batch, tokens], so
/// that generate() continues a question. It never gives the image token, whose logit is -inf. Without gradients; the modules are shared.
/// Error(Usage) for another model or image.
Model about_image(const Model& model, const at::Tensor& image);

}  // namespace npu_train
