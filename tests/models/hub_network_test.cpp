#include "testing.hpp"

#include "npu_train/models/hub_network.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

HubNetwork network_of(const std::string& text) {
  auto found = hub_network(parse_json(text, "t"));
  REQUIRE(found.has_value());
  return *found;
}

const HubOption& option_of(const HubNetwork& network, const std::string& name) {
  const auto found = std::find_if(network.options.begin(), network.options.end(), [&](const HubOption& o) { return o.option == name; });
  REQUIRE_MESSAGE(found != network.options.end(), name);
  return *found;
}

std::string value_of(const HubNetwork& network, const std::string& name) { return option_of(network, name).value.scalar(); }

}  // namespace

TEST_CASE("a file without keys has the values of transformers, and sizes that it does not have are not compared") {
  const auto llama = network_of(R"({"model_type": "llama"})"), mistral = network_of(R"({"model_type": "mistral"})");
  CHECK(llama.model == "llama");
  CHECK(mistral.model == "llama");
  CHECK(value_of(llama, "norm_eps") == "1e-06");
  CHECK(value_of(llama, "kv_heads") == "32");
  CHECK(value_of(mistral, "kv_heads") == "8");
  CHECK(value_of(llama, "sliding_window") == "0");
  CHECK(value_of(mistral, "sliding_window") == "4096");
  CHECK(value_of(network_of(R"({"model_type": "mistral", "sliding_window": null})"), "sliding_window") == "0");
  CHECK(!option_of(llama, "dim").compared);
  CHECK(option_of(llama, "heads").compared);
  for (const auto& type : hub_model_types()) CHECK_MESSAGE(network_of("{\"model_type\": \"" + type + "\"}").foreign.empty(), type);
  for (const char* text : {"{}", "[]", R"({"model_type": 3})", R"({"model_type": "granite"})"}) CHECK(!hub_network(parse_json(text, "t")));
}

TEST_CASE("what ours does not compute, and what is unknown, is foreign") {
  const auto foreign = [](const std::string& type, const std::string& member) {
    return join(network_of("{\"model_type\": \"" + type + "\", " + member + "}").foreign, "; ");
  };
  CHECK(foreign("llama", R"("attention_bias": true)") == "attention_bias is true, this network has false");
  CHECK(foreign("llama", R"("attention_bias": false, "use_cache": true, "extra": null, "more": [], "other": "")").empty());
  CHECK(foreign("llama", R"("extra": false)") == "extra is false, which is unknown here");
  CHECK(foreign("llama", R"("sliding_window": 4)") == "sliding_window is 4, this network has null");
  CHECK(foreign("llama", R"("rope_scaling": {"type": "dynamic", "factor": 2.0})") ==
        "rope_scaling.rope_type is dynamic, this network has none or linear or llama3 or yarn");
  CHECK(foreign("llama", R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})") ==
        "rope_parameters.partial_rotary_factor is 0.5, this network has 1");
  CHECK(
      foreign("llama", R"("architectures": ["LlamaForSequenceClassification"])").find("architectures is LlamaForSequenceClassification") ==
      0);
  CHECK(foreign("gpt2", R"("scale_attn_weights": false)") == "scale_attn_weights is false, this network has true");
  CHECK(foreign("bert", R"("is_decoder": true)") == "is_decoder is true, this network has false");
  CHECK(foreign("bert", R"("hidden_act": "mish")").find("hidden_act is mish") == 0);
  CHECK(foreign("resnet", R"("downsample_in_bottleneck": true)") == "downsample_in_bottleneck is true, this network has false");
  CHECK(foreign("resnet",
                R"("layer_type": "basic", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "downsample_in_bottleneck": true)")
            .empty());
  CHECK(has(foreign("resnet", R"("depths": [1, 1, 1, 1])"), "depths is [1,1,1,1]"));
  CHECK(has(foreign("clip", R"("vision_config": {"hidden_act": "mish"})"), "vision_config.hidden_act is mish"));
}

TEST_CASE("rotary positions in the forms of transformers 4 and 5") {
  const auto old = network_of(R"({"model_type": "llama", "rope_theta": 300.0, "rope_scaling": {"type": "linear", "factor": 3.0}})");
  CHECK(value_of(old, "rope_theta") == "300");
  CHECK(value_of(old, "rope_scaling.type") == "linear");
  CHECK(value_of(old, "rope_scaling.factor") == "3");
  const auto yarn = [](const std::string& more) {
    return network_of(
        R"({"model_type": "llama", "max_position_embeddings": 64, "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0,
      "original_max_position_embeddings": 16)" +
        more + "}}");
  };
  CHECK(value_of(yarn(R"(, "factor": 8.0)"), "rope_theta") == "500");
  CHECK(value_of(yarn(R"(, "factor": null)"), "rope_scaling.factor") == "4");  // 64 / 16
  const auto scale = [&](const std::string& more) {
    return std::stod(value_of(yarn(R"(, "factor": 4.0)" + more), "rope_scaling.attention_factor"));
  };
  CHECK(scale("") == doctest::Approx(0.1 * std::log(4.0) + 1));
  CHECK(scale(R"(, "attention_factor": 1.5)") == 1.5);
  CHECK(scale(R"(, "mscale": 0.7, "mscale_all_dim": 0.9)") == doctest::Approx((0.07 * std::log(4.0) + 1) / (0.09 * std::log(4.0) + 1)));
}

TEST_CASE("both forms of CLIP's sections, and its two rules for the end of a text") {
  const auto clip = network_of(R"({"model_type": "clip", "vision_config": {"hidden_act": "gelu", "hidden_size": 8},
    "text_config": {"eos_token_id": 2, "hidden_act": "relu"}, "text_config_dict": {"hidden_act": "gelu", "intermediate_size": 20}})");
  CHECK(clip.foreign.empty());
  CHECK(value_of(clip, "vision_dim") == "8");
  CHECK(value_of(clip, "text_hidden") == "20");
  CHECK(value_of(clip, "end_token") == "-1");
  for (const auto& o : clip.options)
    if (o.option == "activation") CHECK(o.value.scalar() == "gelu");
  CHECK(value_of(network_of(R"({"model_type": "clip", "text_config": {"eos_token_id": 7}})"), "end_token") == "7");
}
