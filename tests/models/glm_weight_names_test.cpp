#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>

#include <map>

#include "models/by_path.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::map<std::string, at::Tensor> named(const NamedTensors& tensors) { return {tensors.begin(), tensors.end()}; }

void check_same(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  const auto other = named(b);
  for (const auto& tensor : a) {
    const auto found = other.find(tensor.first);
    REQUIRE_MESSAGE(found != other.end(), tensor.first);
    CHECK_MESSAGE(at::equal(tensor.second, found->second), tensor.first);
  }
}

bool has_words(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("a glm has the names of Hugging Face, and its blocks no other tensors") {
  NamedTensors tensors = {{"token_embedding.weight", at::randn({7, 4})}, {"ln.weight", at::randn({4})}, {"ln.bias", at::randn({4})}};
  const auto layer = [&](const std::string& name, int64_t out, int64_t in) {
    tensors.emplace_back(name + ".weight", in > 0 ? at::randn({out, in}) : at::randn({out}));
    tensors.emplace_back(name + ".bias", at::randn({out}));
  };
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    layer(block + "ln_1", 4, 0), layer(block + "ln_2", 4, 0);
    layer(block + "attention.query_key_value", 12, 4), layer(block + "attention.proj", 4, 4);
    layer(block + "mlp.fc1", 6, 4), layer(block + "mlp.fc2", 4, 6);
  }
  const auto keys = [&](const std::string& tied) {
    CHECK(configuration_of(tensors) ==
          std::vector<std::pair<std::string, std::string>>{
              {"model.vocab_size", "7"}, {"model.layers", "2"}, {"model.dim", "4"}, {"model.hidden", "6"}, {"model.tie_embeddings", tied}});
  };
  keys("true");
  check_same(renamed_weights(renamed_weights(tensors, "hf").tensors, "torchvision").tensors, tensors);
  auto net = std::make_shared<ByPath>();
  for (const auto& [name, value] : tensors) net->add(name, at::randn_like(value));
  const NamedTensors tied = tensors;
  tensors.emplace_back("head.weight", at::randn({7, 4}));
  keys("false");
  const auto hf = renamed_weights(tensors, "hf");
  CHECK(hf.from.str() == "a glm with the names of npu_train");
  CHECK(hf.omitted.empty());
  const auto theirs = named(hf.tensors), ours = named(tensors);
  for (const std::pair<std::string, std::string>& names : std::vector<std::pair<std::string, std::string>>{
           {"transformer.word_embeddings.weight", "token_embedding.weight"},
           {"transformer.layers.1.input_layernorm.bias", "blocks.1.ln_1.bias"},
           {"transformer.layers.0.attention.query_key_value.weight", "blocks.0.attention.query_key_value.weight"},
           {"transformer.layers.0.attention.dense.bias", "blocks.0.attention.proj.bias"},
           {"transformer.layers.1.post_attention_layernorm.weight", "blocks.1.ln_2.weight"},
           {"transformer.layers.1.mlp.dense_h_to_4h.weight", "blocks.1.mlp.fc1.weight"},
           {"transformer.layers.0.mlp.dense_4h_to_h.bias", "blocks.0.mlp.fc2.bias"},
           {"transformer.final_layernorm.weight", "ln.weight"},
           {"lm_head.weight", "head.weight"}}) {
    REQUIRE_MESSAGE(theirs.count(names.first) == 1, names.first);
    CHECK_MESSAGE(at::equal(theirs.at(names.first), ours.at(names.second)), names.first);
  }

  // A published file has the tied matrix under both names, and the frequencies of the positions.
  auto file = renamed_weights(tied, "hf").tensors;
  file.emplace_back("lm_head.weight", tied.front().second.clone());
  file.emplace_back("transformer.layers.0.attention.rotary_emb.inv_freq", at::ones({2}));
  const auto report = load_weights(*net, file);
  CHECK(report.missing.empty());
  CHECK(report.unexpected == std::vector<std::string>{"transformer.layers.0.attention.rotary_emb.inv_freq"});
  check_same(named_state(*net), tied);
  file.back() = {"transformer.layers.0.attention.query_key_value.weight_scale", at::ones({12})};  // as in a quantised file
  const auto error = error_of([&] { load_weights(*net, file); });
  CHECK(error.kind() == ErrorKind::Checkpoint);
  CHECK_MESSAGE(has_words(error.what(),
                          "tensors of layers that the model does not have: transformer.layers.0.attention.query_key_value.weight_scale"),
                error.what());
}
