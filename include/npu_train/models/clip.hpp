/// CLIP (Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021): a vision transformer for
/// images and a causal transformer for texts, whose features are projected into one space. Parameters: vision.{class_embedding, patch,
/// position_embedding, ln_pre, blocks.#, ln_post, projection}, text.{token_embedding, position_embedding, blocks.#, ln, projection} and
/// logit_scale; a block has ln_1, attention.{q_proj, k_proj, v_proj, proj}, ln_2, mlp.{fc1, fc2}. Loads weights of Hugging Face's CLIPModel
/// (models/weights.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct ClipOptions {
  int64_t image_size = 224;               ///< width and height in pixels; a multiple of patch_size
  int64_t patch_size = 32;                ///< width and height of a patch in pixels
  int64_t vision_layers = 12;             ///< number of blocks of the image tower
  int64_t vision_heads = 12;              ///< number of attention heads of the image tower
  int64_t vision_dim = 768;               ///< width of the image tower; a multiple of vision_heads
  int64_t vision_hidden = 0;              ///< width of the image tower's MLPs; 0: four times vision_dim
  int64_t vocab_size = 49408;             ///< number of distinct tokens
  int64_t context = 77;                   ///< largest number of tokens of a text
  int64_t text_layers = 12;               ///< number of blocks of the text tower
  int64_t text_heads = 8;                 ///< number of attention heads of the text tower
  int64_t text_dim = 512;                 ///< width of the text tower; a multiple of text_heads
  int64_t text_hidden = 0;                ///< width of the text tower's MLPs; 0: four times text_dim
  std::string activation = "quick_gelu";  ///< activation of the MLPs: gelu, gelu_tanh, quick_gelu, relu, silu
  double norm_eps = 1e-5;                 ///< added to the variance in the norms
  int64_t end_token = 49407;  ///< token at whose first occurrence the features of a text are read; -1: the first token with the largest id
  int64_t projection = 512;   ///< size of the common feature space
  /// Limit on the factor of the feature products: after each step, the parameter logit_scale is clamped to [0, ln(max_scale)], as in
  /// OpenCLIP; 0: no limit, as in transformers.
  double max_scale = 100;
  std::string tower = "both";  ///< towers that the forward calls: both, or only image or text, to export a single tower
  std::string weights{};       ///< file with initial weights
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<ClipOptions>& config_table();
};

ClipOptions clip_vit_b32_options();  ///< the defaults: 151,277,313 parameters, OpenAI's ViT-B/32
/// Sizes for images of 32 x 32 and bytes as tokens: patch_size 8, both towers with 2 layers, 2 heads and width 64, context 64, projection
/// 32.
ClipOptions clip_tiny_options();

/// Inputs: "input", images [batch, 3, image_size, image_size]; "tokens", ids int64 [batch, tokens] of 1 to `context` tokens. Tokens after
/// the end_token are ignored. A text without an end_token is represented by its first token, as in transformers. Outputs: "image_features"
/// and "text_features" [batch, projection] of length 1, and "scale", the factor of their products (a scalar: exp of the parameter). With
/// `tower` image or text, only that tower's input and features. Weights are drawn from the default generator as in OpenAI's code;
/// logit_scale is ln(1 / 0.07). Error(Usage) for sizes that do not divide and for other inputs; on a CPU Error(Data) for an id outside of
/// the vocabulary.
Model clip(const ClipOptions& options, const std::string& name = "clip");

}  // namespace npu_train
