#include "npu_train/models/registry.hpp"

#include "bert_options.hpp"
#include "clip_options.hpp"
#include "glm_options.hpp"
#include "gpt2_options.hpp"
#include "llama_options.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/models/torchscript.hpp"
#include "vit_options.hpp"

namespace npu_train {
namespace {

// VitOptions whose defaults are those of a named size, so that a configuration can change any of them.
template <VitOptions (*defaults)()>
struct VitPreset : VitOptions {
  VitPreset() : VitOptions(defaults()) {}
  static const ConfigTable<VitPreset>& config_table() {
    static const auto table = detail::vit_fields<VitPreset>("model vit");
    return table;
  }
};

template <VitOptions (*defaults)()>
void add_vit(ModelRegistry& registry, const std::string& name, const std::string& doc) {
  registry.add<VitPreset<defaults>>(name, doc, [name](const VitOptions& options) { return vit(options, name); });
}

template <Gpt2Options (*defaults)()>
struct Gpt2Preset : Gpt2Options {
  Gpt2Preset() : Gpt2Options(defaults()) {}
  static const ConfigTable<Gpt2Preset>& config_table() {
    static const auto table = detail::gpt2_fields<Gpt2Preset>("model gpt2");
    return table;
  }
};

template <Gpt2Options (*defaults)()>
void add_gpt2(ModelRegistry& registry, const std::string& name, const std::string& doc) {
  registry.add<Gpt2Preset<defaults>>(name, doc, [name](const Gpt2Options& options) { return gpt2(options, name); });
}

template <BertOptions (*defaults)()>
struct BertPreset : BertOptions {
  BertPreset() : BertOptions(defaults()) {}
  static const ConfigTable<BertPreset>& config_table() {
    static const auto table = detail::bert_fields<BertPreset>("model bert");
    return table;
  }
};

template <BertOptions (*defaults)()>
void add_bert(ModelRegistry& registry, const std::string& name, const std::string& doc) {
  registry.add<BertPreset<defaults>>(name, doc, [name](const BertOptions& options) { return bert(options, name); });
}

template <ClipOptions (*defaults)()>
struct ClipPreset : ClipOptions {
  ClipPreset() : ClipOptions(defaults()) {}
  static const ConfigTable<ClipPreset>& config_table() {
    static const auto table = detail::clip_fields<ClipPreset>("model clip");
    return table;
  }
};

template <ClipOptions (*defaults)()>
void add_clip(ModelRegistry& registry, const std::string& name, const std::string& doc) {
  registry.add<ClipPreset<defaults>>(name, doc, [name](const ClipOptions& options) { return clip(options, name); });
}

template <LlamaOptions (*defaults)()>
struct LlamaPreset : LlamaOptions {
  LlamaPreset() : LlamaOptions(defaults()) {}
  static const ConfigTable<LlamaPreset>& config_table() {
    static const auto table = detail::llama_fields<LlamaPreset>("model llama");
    return table;
  }
};

template <GlmOptions (*defaults)()>
struct GlmPreset : GlmOptions {
  GlmPreset() : GlmOptions(defaults()) {}
  static const ConfigTable<GlmPreset>& config_table() {
    static const auto table = detail::glm_fields<GlmPreset>("model glm");
    return table;
  }
};

template <GlmOptions (*defaults)()>
void add_glm(ModelRegistry& registry, const std::string& name, const std::string& doc) {
  registry.add<GlmPreset<defaults>>(name, doc, [name](const GlmOptions& options) { return glm(options, name); });
}

}  // namespace

void add_builtin_models(ModelRegistry& registry) {
  for (const int64_t depth : {18, 34, 50, 101, 152})
    registry.add<ResNetOptions>("resnet" + std::to_string(depth), "residual network of " + std::to_string(depth) + " layers",
                                [depth](const ResNetOptions& options) { return resnet(depth, options); });
  registry.add<VitOptions>("vit", "vision transformer of configurable size", [](const VitOptions& options) { return vit(options, "vit"); });
  add_vit<vit_tiny_options>(registry, "vit_tiny", "vision transformer, patch 16, dim 192, depth 12, heads 3");
  add_vit<vit_small_options>(registry, "vit_small", "vision transformer, patch 16, dim 384, depth 12, heads 6");
  add_vit<vit_b16_options>(registry, "vit_b16", "vision transformer, patch 16, dim 768, depth 12, heads 12");
  add_vit<vit_b32_options>(registry, "vit_b32", "vision transformer, patch 32, dim 768, depth 12, heads 12");
  add_vit<vit_l16_options>(registry, "vit_l16", "vision transformer, patch 16, dim 1024, depth 24, heads 16");
  add_vit<vit_tiny_cifar10_options>(registry, "vit_tiny_cifar10",
                                    "vision transformer for 32x32 images, patch 4, dim 192, depth 12, heads 3");
  registry.add<TorchScriptOptions>("torchscript", "a TorchScript module of Python, from a file", torchscript);
  registry.add<Gpt2Options>("gpt2", "GPT-2 of configurable size", [](const Gpt2Options& options) { return gpt2(options, "gpt2"); });
  add_gpt2<gpt2_124m_options>(registry, "gpt2_124m", "GPT-2 with 124 million parameters: layers 12, heads 12, dim 768");
  add_gpt2<gpt2_tiny_options>(registry, "gpt2_tiny", "GPT-2 for bytes: vocab_size 256, context 64, layers 2, heads 2, dim 64");
  registry.add<LlamaOptions>("llama", "Llama of configurable size", [](const LlamaOptions& options) { return llama(options, "llama"); });
  registry.add<LlamaPreset<llama_tiny_options>>("llama_tiny",
                                                "Llama for bytes: vocab_size 256, context 64, layers 2, heads 4, kv_heads 2, dim 64",
                                                [](const LlamaOptions& options) { return llama(options, "llama_tiny"); });
  registry.add<GlmOptions>("glm", "GLM of configurable size", [](const GlmOptions& options) { return glm(options, "glm"); });
  add_glm<glm_6b_options>(registry, "glm_6b", "GLM-6B: 6.2 billion parameters, layers 28, heads 32, dim 4096");
  add_glm<glm_tiny_options>(registry, "glm_tiny", "GLM for bytes: vocab_size 256, context 64, layers 2, heads 2, dim 64");
  registry.add<BertOptions>("bert", "BERT of configurable size", [](const BertOptions& options) { return bert(options, "bert"); });
  add_bert<bert_base_options>(registry, "bert_base", "BERT with 110 million parameters: layers 12, heads 12, dim 768");
  add_bert<bert_tiny_options>(registry, "bert_tiny", "BERT for bytes: vocab_size 258, context 64, layers 2, heads 2, dim 64");
  registry.add<ClipOptions>("clip", "CLIP of configurable size", [](const ClipOptions& options) { return clip(options, "clip"); });
  add_clip<clip_vit_b32_options>(registry, "clip_vit_b32", "CLIP with 151 million parameters: OpenAI's ViT-B/32");
  add_clip<clip_tiny_options>(registry, "clip_tiny", "CLIP for bytes and images of 32 x 32: layers 2, heads 2, dim 64 in both towers");
}

}  // namespace npu_train
