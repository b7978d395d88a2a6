#include "models/llama/llama_net.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/rsub.h>

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layer_scope.hpp"

namespace npu_train::detail {
namespace {

constexpr double kLlamaStd = 0.02;
constexpr const char *kRotaryCos = "llama.cos", *kRotarySin = "llama.sin";  // names of the values that the blocks share

struct LlamaBlocks : torch::nn::Module {
  LlamaBlocks() : torch::nn::Module("Blocks") {}
};

int64_t hidden_of(const LlamaOptions& o) { return o.hidden > 0 ? o.hidden : (8 * o.dim / 3 + 255) / 256 * 256; }

bool has_fused_kernels(const LlamaOptions& o) { return o.fused_kernels == "auto"; }

GroupedQueryOptions attention_of(const LlamaOptions& o) {
  return {.dim = o.dim,
          .heads = o.heads,
          .kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads,
          .window = o.sliding_window,
          .qkv_bias = o.qkv_bias,
          .std = kLlamaStd,
          .fused_kernels = has_fused_kernels(o)};
}

// Returns the scaled frequencies of Llama 3.1 (transformers: _compute_llama3_parameters).
at::Tensor llama3_frequencies(const at::Tensor& usual, const RopeScaling& s) {
  const auto original = static_cast<double>(s.original_context);
  // Number of periods in the original context. Below low_freq_factor the frequency is divided, above high_freq_factor it is kept.
  const at::Tensor periods = usual * (original / (2 * M_PI));
  const at::Tensor kept = ((periods - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1);
  return (1 - kept) * usual / s.factor + kept * usual;
}

// Returns the scaled frequencies of YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", ICLR 2024).
// Frequencies with more than beta_fast rotations in the original context are kept, and those with fewer than beta_slow are divided; in
// between, they follow a linear ramp over their indices.
at::Tensor yarn_frequencies(const at::Tensor& usual, const RopeScaling& s, double theta) {
  const auto number = static_cast<double>(usual.numel()), size = 2 * number;
  const auto with_rotations = [&](double rotations) {
    return size * std::log(static_cast<double>(s.original_context) / (rotations * 2 * M_PI)) / (2 * std::log(theta));
  };
  const double low = std::max(std::floor(with_rotations(s.beta_fast)), 0.0);
  const double high = std::min(std::ceil(with_rotations(s.beta_slow)), size - 1);
  const at::Tensor divided = ((at::arange(usual.numel(), usual.options()) - low) / (high == low ? 1e-3 : high - low)).clamp(0, 1);
  return divided * usual / s.factor + (1 - divided) * usual;
}

at::Tensor llama_frequencies(const LlamaOptions& o) {
  const at::Tensor usual = rotary_frequencies(o.dim / o.heads, o.rope_theta);
  const auto& s = o.rope_scaling;
  if (s.type == "linear") return usual / s.factor;
  if (s.type == "llama3") return llama3_frequencies(usual, s);
  return s.type == "yarn" ? yarn_frequencies(usual, s, o.rope_theta) : usual;
}

// Returns the factor on rotated queries and keys.
double rotary_scale(const RopeScaling& s) {
  if (s.type != "yarn") return 1;
  if (s.attention_factor > 0) return s.attention_factor;
  return s.factor > 1 ? 0.1 * std::log(s.factor) + 1 : 1;
}

}  // namespace

LlamaBlock::LlamaBlock(const LlamaOptions& o) : torch::nn::Module("LlamaBlock") {
  norm_1_ = register_module("norm_1", std::make_shared<RmsNorm>(o.dim, o.norm_eps));
  attention_ = register_module("attention", std::make_shared<GroupedQueryAttention>(attention_of(o)));
  norm_2_ = register_module("norm_2", std::make_shared<RmsNorm>(o.dim, o.norm_eps));
  mlp_ = register_module(
      "mlp", std::make_shared<SwiGlu>(o.dim, hidden_of(o), activation_of(o.activation, "llama"), kLlamaStd, has_fused_kernels(o)));
}

at::Tensor LlamaBlock::forward(const at::Tensor& x, const Rotary& rotary, KeyValueCache* cache, const TokenPlaces& places) const {
  const auto attend = [&](const at::Tensor& t) { return attention_->forward(t, rotary, cache, places); };
  const at::Tensor y = x + in_layer("attention", norm_1_->forward(x), attend);
  return y + mlp_->forward(norm_2_->forward(y));
}

Llama::Llama(const LlamaOptions& o, const char* network)
    : torch::nn::Module("Llama"),
      network_(network),
      rotary_(llama_frequencies(o), o.context, rotary_scale(o.rope_scaling)),
      vocab_size_(o.vocab_size),
      context_(o.context),
      window_(o.sliding_window),
      fused_(has_fused_kernels(o)) {
  token_embedding_ = register_module("token_embedding", std::make_shared<Embedding>(o.vocab_size, o.dim, kLlamaStd));
  auto list = register_module("blocks", std::make_shared<LlamaBlocks>());
  for (int64_t i = 0; i < o.layers; ++i) blocks.push_back(list->register_module(std::to_string(i), std::make_shared<LlamaBlock>(o)));
  norm_ = register_module("norm", std::make_shared<RmsNorm>(o.dim, o.norm_eps));
  if (o.tie_embeddings) return;
  head_ = register_module("head", std::make_shared<Linear>(o.dim, o.vocab_size, /*bias=*/false, fused_));
  init::normal_(head_->weight, kLlamaStd);
}

// Does not use the positions, because only the blocks rotate vectors.
at::Tensor Llama::embed(const at::Tensor& tokens, int64_t before, const TokenPlaces& /*places*/) {
  check_tokens(network_, tokens, before, context_, vocab_size_);
  return token_embedding_->forward(tokens);
}

at::Tensor Llama::embed(const ForwardContext& context, const at::Tensor& tokens) {
  packed_positions(context, network_, tokens, context_);  // checks the positions
  return embed(tokens);
}

at::Tensor Llama::block(size_t i, const at::Tensor& x, KeyValueCache* cache, const TokenPlaces& places) {
  return blocks[i]->forward(x, rotary_, cache, places);
}

at::Tensor Llama::block(const ForwardContext& context, size_t i, const at::Tensor& x) { return block(i, x, nullptr, packed(context)); }

TokenPlaces Llama::packed(const ForwardContext& context) const {
  TokenPlaces out = packed_places(context, window_);
  if (!out.positions.defined()) return out;
  out.cos = context.get(kRotaryCos), out.sin = context.get(kRotarySin);
  if (out.cos.defined()) return out;
  rotary_.look_up(out);
  context.put(kRotaryCos, out.cos);
  context.put(kRotarySin, out.sin);
  return out;
}

TokenPlaces Llama::padded(const at::Tensor& padding, int64_t before, int64_t count) const {
  TokenPlaces out = padded_places(padding, before, count, window_);
  rotary_.look_up(out);
  return out;
}

at::Tensor Llama::head(const at::Tensor& x) {
  const at::Tensor y = norm_->forward(x);
  return head_ != nullptr ? head_->forward(y) : token_embedding_->products(y, fused_);
}

void check_llama_options(const LlamaOptions& o, const char* network) {
  check(o.vocab_size > 0 && o.context > 0 && o.layers > 0 && o.heads > 0 && o.dim > 0 && o.kv_heads >= 0 && o.hidden >= 0, ErrorKind::Usage,
        network, "vocab_size, context, layers, heads and dim must be at least 1, kv_heads and hidden at least 0");
  check(o.dim % (2 * o.heads) == 0, ErrorKind::Usage, network, "dim is ", o.dim, "; it must be a multiple of 2 * heads = ", 2 * o.heads,
        ", because rotary positions rotate pairs of a head's components");
  check(o.kv_heads == 0 || o.heads % o.kv_heads == 0, ErrorKind::Usage, network, "heads ", o.heads, " is not a multiple of kv_heads ",
        o.kv_heads);
  check(o.fused_kernels == "auto" || o.fused_kernels == "false", ErrorKind::Usage, network, "fused_kernels '", o.fused_kernels,
        "'; allowed: auto, false");
  const auto& s = o.rope_scaling;
  const auto types = rope_types();
  check(std::find(types.begin(), types.end(), s.type) != types.end(), ErrorKind::Usage, network, "rope_scaling.type is '", s.type,
        "'; allowed: ", join(types));
  check(s.factor > 0 && s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor && s.original_context > 0, ErrorKind::Usage,
        network, "rope_scaling has the factors ", s.factor, ", ", s.low_freq_factor, " and ", s.high_freq_factor, " and original_context ",
        s.original_context, "; all must be more than 0, and high_freq_factor more than low_freq_factor");
  check(s.beta_slow > 0 && s.beta_fast > s.beta_slow && s.attention_factor >= 0, ErrorKind::Usage, network, "rope_scaling has beta_fast ",
        s.beta_fast, ", beta_slow ", s.beta_slow, " and attention_factor ", s.attention_factor,
        "; beta_slow must be more than 0, beta_fast more than beta_slow and attention_factor at least 0");
  check(s.type != "yarn" || o.rope_theta > 1, ErrorKind::Usage, network, "rope_scaling.type yarn needs a rope_theta of more than 1");
  check(o.sliding_window >= 0, ErrorKind::Usage, network, "sliding_window is ", o.sliding_window, "; allowed: at least 0");
  check(o.rope_theta >= 1 && o.norm_eps >= 0, ErrorKind::Usage, network, "rope_theta is ", o.rope_theta, " and norm_eps ", o.norm_eps,
        "; rope_theta must be at least 1 and norm_eps at least 0");
}

}  // namespace npu_train::detail
