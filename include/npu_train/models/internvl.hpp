/// InternVL (Chen et al., "InternVL: Scaling up Vision Foundation Models and Aligning for Generic Visual-Linguistic Tasks", CVPR 2024; "How
/// Far Are We to GPT-4V?", 2024): a vision transformer, a projector that joins each square of patches (by default four) into one vector,
/// and a Llama that reads these vectors as part of a text and continues it. Parameters: vision.{class_embedding, patch, position_embedding,
/// blocks.#}, projector.{norm, fc1, fc2}, language.{token_embedding, blocks.#, norm, head}. A block of the vision transformer has ln_1,
/// attention.{q_proj, k_proj, v_proj, proj}, scale_1, ln_2, mlp.{fc1, fc2}, scale_2; for a block of the language model, see llama.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/models/llama.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Options; the sizes of the language model have the keys of LlamaOptions.
struct InternVlOptions : LlamaOptions {
  int64_t image_size = 448;    ///< width and height in pixels; a multiple of patch_size * pixel_shuffle
  int64_t patch_size = 14;     ///< width and height of a patch in pixels
  int64_t vision_layers = 24;  ///< number of blocks of the vision transformer
  int64_t vision_heads = 16;   ///< number of attention heads of the vision transformer
  int64_t vision_dim = 1024;   ///< width of the vision transformer; a multiple of vision_heads
  int64_t vision_hidden = 0;   ///< width of the vision transformer's MLPs; 0: four times vision_dim
  double layer_scale = 0.1;    ///< initial scale of the vision transformer's residual branches
  int64_t pixel_shuffle =
      2;  ///< side of the square of patches that becomes one vector; 1 / downsample_ratio of the published configuration
  int64_t image_token = 31999;   ///< id of the token IMG_CONTEXT, which is replaced by a vector of the image
  int64_t image_tokens() const;  ///< number of vectors of an image: (image_size / patch_size / pixel_shuffle)^2
  static const ConfigTable<InternVlOptions>& config_table();
};

/// Sizes for images of 32 x 32 and bytes as tokens: patch_size 4, so 16 vectors per image; both networks with 2 layers and width 64;
/// context 64; image_token 255, a byte that never occurs in UTF-8 text; layer_scale 1.
InternVlOptions internvl_tiny_options();

/// Inputs: "input", images [batch, 3, image_size, image_size], and "tokens", ids int64 [batch, tokens] of 1 to `context` tokens. The
/// image_token occurs image_tokens() times among them. Its k-th occurrence is replaced by the k-th vector of the image, whose patches are
/// read row by row (the form "v2" of the published pixel_shuffle). Output: logits [batch, tokens, vocab_size] of the next token. The class
/// token of the vision transformer is dropped. Weights are drawn from the default generator: N(0, 0.02^2), norms 1, biases 0. Blocks:
/// vision.embed, vision.blocks.0 ..., projector, language.embed, language.blocks.0 ..., language.head. Error(Usage) for sizes that do not
/// divide; on a CPU Error(Data) for an id outside of the vocabulary and for a text with more image tokens than an image has.
Model internvl(const InternVlOptions& options, const std::string& name = "internvl");

/// Returns the id and number of image tokens in the texts of a model created by internvl(); nullopt for another model.
struct ImagePlaces {
  int64_t token = 0, count = 0;
};
std::optional<ImagePlaces> image_places(const Model& model);

/// Returns the model's decoder with an image [3, image_size, image_size] in place of the image tokens. Its input is token ids [batch,
/// tokens], so that generate() can continue a question. It never generates the image token, whose logit is always -inf. Runs without
/// gradients and shares the modules. Error(Usage) for another model or image.
Model about_image(const Model& model, const at::Tensor& image);

}  // namespace npu_train
