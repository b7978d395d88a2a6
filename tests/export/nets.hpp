// Networks as users write them, from libtorch's own layers.
#pragma once

#include "cases.hpp"

namespace npu_train::testing {

/// A network of convolutions of every kind, groups, norms, a transformer encoder over positions, and a head of Linear and BatchNorm.
class MixedNetImpl : public torch::nn::Module {
 public:
  MixedNetImpl() {
    using namespace torch::nn;
    body =
        register_module("body", Sequential(Conv2d(Conv2dOptions(3, 8, 3).padding(1).bias(false)), BatchNorm2d(8), ReLU(ReLUOptions(true)),
                                           MaxPool2d(2), Conv2d(Conv2dOptions(8, 16, 3).stride(2).groups(4).dilation(2).padding(2)), SiLU(),
                                           AvgPool2d(2), ELU(), Dropout(0.5), LeakyReLU(), Hardtanh()));
    group = register_module("group", GroupNorm(GroupNormOptions(4, 16)));
    up = register_module("up", ConvTranspose2d(ConvTranspose2dOptions(16, 8, 2).stride(2)));
    encoder = register_module(
        "encoder", TransformerEncoder(TransformerEncoderLayer(TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1)), 1));
    hidden = register_module("hidden", Linear(8, 16));
    norm = register_module("norm", LayerNorm(LayerNormOptions({16})));
    batch = register_module("batch", BatchNorm1d(16));
    head = register_module("head", Linear(16, 10));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor h = up(group(body->forward(x)));
    const auto tokens = encoder(h.flatten(2).permute({2, 0, 1}));
    h = torch::adaptive_avg_pool2d(h, {1, 1}).flatten(1) + tokens.mean(0);
    h = batch(norm(torch::gelu(hidden(h))));
    h = h * 0.5 + torch::tanh(h).pow(2);
    return torch::log_softmax(head(torch::cat({h.slice(1, 0, 8), h.slice(1, 8)}, 1)), 1);
  }
  torch::nn::Sequential body{nullptr};
  torch::nn::GroupNorm group{nullptr};
  torch::nn::ConvTranspose2d up{nullptr};
  torch::nn::TransformerEncoder encoder{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::BatchNorm1d batch{nullptr};
};
TORCH_MODULE(MixedNet);

/// Maps token ids [batch, tokens] to scores of every token, by recurrent layers of two kinds.
class TaggerImpl : public torch::nn::Module {
 public:
  TaggerImpl() {
    using namespace torch::nn;
    embedding = register_module("embedding", Embedding(20, 6));
    lstm = register_module("lstm", LSTM(LSTMOptions(6, 5).num_layers(2).bidirectional(true).batch_first(true)));
    gru = register_module("gru", GRU(GRUOptions(10, 7)));
    head = register_module("head", Linear(7, 4));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto words = std::get<0>(lstm->forward(embedding(ids)));
    const auto [steps, last] = gru->forward(words.transpose(0, 1));
    return head(steps.transpose(0, 1)) + last.mean(at::IntArrayRef({0, 2})).view({-1, 1, 1});
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::GRU gru{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Tagger);

/// A causal language model whose head is tied to its embedding; both batch and tokens are free.
class CausalNetImpl : public torch::nn::Module {
 public:
  CausalNetImpl() {
    using namespace torch::nn;
    words = register_module("words", Embedding(30, 8));
    places = register_module("places", Embedding(16, 8));
    norm = register_module("norm", LayerNorm(LayerNormOptions({8}).eps(1e-6)));
    qkv = register_module("qkv", Linear(8, 24));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto n = ids.size(0), t = ids.size(1);
    const auto x = words(ids) + places(torch::arange(t));
    const auto parts = qkv(norm(x)).view({n, t, 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto mixed = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    const auto y = x + mixed.transpose(1, 2).reshape({n, t, 8});
    const auto scale = torch::rsqrt(y.pow(2).mean(-1, true) + 1e-6);  // RMSNorm
    return torch::linear(y * scale, words->weight);
  }
  torch::nn::Embedding words{nullptr}, places{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear qkv{nullptr};
};
TORCH_MODULE(CausalNet);

struct NetCase {
  std::string name;
  Model model;
  std::vector<at::Tensor> inputs;  ///< values of the field "x"
};

inline InputSpec token_input(int64_t vocabulary) {
  return {
      .name = "x", .dtype = at::kLong, .shape = {"batch", Extent("tokens", 6)}, .range = std::pair(0.0, static_cast<double>(vocabulary))};
}

/// Returns networks with weights and statistics as after a training: none is 0 or 1.
inline std::vector<NetCase> net_cases() {
  std::vector<NetCase> out;
  const auto add = [&](const std::string& name, auto net, const at::Tensor& x, std::vector<InputSpec> inputs) {
    const at::NoGradGuard no_grad;
    for (auto& p : net->parameters())
      if (p.dim() == 1) p.add_(at::randn_like(p) * 0.1);
    for (auto& b : net->buffers())
      if (b.is_floating_point()) b.uniform_(0.5, 1.5);
    auto model = model_of(
        [net](const Batch& batch) mutable {
          return Outputs(std::vector<Outputs::Field>{{"scores", net->forward(batch.at("x"))}});
        },
        net.ptr());
    model.inputs = std::move(inputs);
    out.push_back({name, model, {x}});
  };
  add("mixed_net", MixedNet(), at::randn({4, 3, 16, 16}), {});
  add("tagger", Tagger(), at::randint(20, {4, 6}, at::kLong), {token_input(20)});
  add("causal_net", CausalNet(), at::randint(30, {4, 6}, at::kLong), {token_input(30)});
  return out;
}

}  // namespace npu_train::testing
