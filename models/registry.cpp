#include "npu_train/models/registry.hpp"

#include "bert_options.hpp"
#include "clip_options.hpp"
#include "glm_options.hpp"
#include "gpt2_options.hpp"
#include "internvl_options.hpp"
#include "llama_options.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/models/torchscript.hpp"
#include "vit_options.hpp"

namespace npu_train {
namespace {

// A network with named sizes: its options, the keys of these, and how it is made.
struct VitFamily {
  using Options = VitOptions;
  template <class T>
  static ConfigTable<T> fields() {
    return detail::vit_fields<T>("model vit");
  }
  static Model make(const Options& options, const std::string& name) { return vit(options, name); }
};

struct Gpt2Family {
  using Options = Gpt2Options;
  template <class T>
  static ConfigTable<T> fields() {
    return detail::gpt2_fields<T>("model gpt2");
  }
  static Model make(const Options& options, const std::string& name) { return gpt2(options, name); }
};

struct BertFamily {
  using Options = BertOptions;
  template <class T>
  static ConfigTable<T> fields() {
    return detail::bert_fields<T>("model bert");
  }
  static Model make(const Options& options, const std::string& name) { return bert(options, name); }
};

struct ClipFamily {
  using Options = ClipOptions;
  template <class T>
  static ConfigTable<T> fields() {
    return detail::clip_fields<T>("model clip");
  }
  static Model make(const Options& options, const std::string& name) { return clip(options, name); }
};

struct LlamaFamily {
  using Options = LlamaOptions;
  template <class T>
  static ConfigTable<T> fields() {
    return detail::llama_fields<T>("model llama");
  }
  static Model make(const Options& options, const std::string& name) { return llama(options, name); }
};

struct InternVlFamily {
  using Options = InternVlOptions;
  template <class T>
  static ConfigTable<T> fields() {
    return detail::internvl_fields<T>("model internvl");
  }
  static Model make(const Options& options, const std::string& name) { return internvl(options, name); }
};

struct GlmFamily {
  using Options = GlmOptions;
  template <class T>
  static ConfigTable<T> fields() {
    return detail::glm_fields<T>("model glm");
  }
  static Model make(const Options& options, const std::string& name) { return glm(options, name); }
};

// Options whose defaults are those of a named size, so that a configuration can change any of them.
template <class Family, typename Family::Options (*defaults)()>
struct Preset : Family::Options {
  Preset() : Family::Options(defaults()) {}
  static const ConfigTable<Preset>& config_table() {
    static const auto table = Family::template fields<Preset>();
    return table;
  }
};

template <class Family, typename Family::Options (*defaults)()>
void add_preset(ModelRegistry& registry, const std::string& name, const std::string& doc) {
  registry.add<Preset<Family, defaults>>(name, doc,
                                         [name](const typename Family::Options& options) { return Family::make(options, name); });
}

}  // namespace

void add_builtin_models(ModelRegistry& registry) {
  for (const int64_t depth : {18, 34, 50, 101, 152})
    registry.add<ResNetOptions>("resnet" + std::to_string(depth), "residual network of " + std::to_string(depth) + " layers",
                                [depth](const ResNetOptions& options) { return resnet(depth, options); });
  registry.add<VitOptions>("vit", "vision transformer of configurable size", [](const VitOptions& options) { return vit(options, "vit"); });
  add_preset<VitFamily, vit_tiny_options>(registry, "vit_tiny", "vision transformer, patch 16, dim 192, depth 12, heads 3");
  add_preset<VitFamily, vit_small_options>(registry, "vit_small", "vision transformer, patch 16, dim 384, depth 12, heads 6");
  add_preset<VitFamily, vit_b16_options>(registry, "vit_b16", "vision transformer, patch 16, dim 768, depth 12, heads 12");
  add_preset<VitFamily, vit_b32_options>(registry, "vit_b32", "vision transformer, patch 32, dim 768, depth 12, heads 12");
  add_preset<VitFamily, vit_l16_options>(registry, "vit_l16", "vision transformer, patch 16, dim 1024, depth 24, heads 16");
  add_preset<VitFamily, vit_tiny_cifar10_options>(registry, "vit_tiny_cifar10",
                                                  "vision transformer for 32x32 images, patch 4, dim 192, depth 12, heads 3");
  registry.add<TorchScriptOptions>("torchscript", "a TorchScript module of Python, from a file", torchscript);
  registry.add<Gpt2Options>("gpt2", "GPT-2 of configurable size", [](const Gpt2Options& options) { return gpt2(options, "gpt2"); });
  add_preset<Gpt2Family, gpt2_124m_options>(registry, "gpt2_124m", "GPT-2 with 124 million parameters: layers 12, heads 12, dim 768");
  add_preset<Gpt2Family, gpt2_tiny_options>(registry, "gpt2_tiny",
                                            "GPT-2 for bytes: vocab_size 256, context 64, layers 2, heads 2, dim 64");
  registry.add<LlamaOptions>("llama", "Llama of configurable size", [](const LlamaOptions& options) { return llama(options, "llama"); });
  add_preset<LlamaFamily, llama_tiny_options>(registry, "llama_tiny",
                                              "Llama for bytes: vocab_size 256, context 64, layers 2, heads 4, kv_heads 2, dim 64");
  registry.add<GlmOptions>("glm", "GLM of configurable size", [](const GlmOptions& options) { return glm(options, "glm"); });
  add_preset<GlmFamily, glm_6b_options>(registry, "glm_6b", "GLM-6B: 6.2 billion parameters, layers 28, heads 32, dim 4096");
  add_preset<GlmFamily, glm_tiny_options>(registry, "glm_tiny", "GLM for bytes: vocab_size 256, context 64, layers 2, heads 2, dim 64");
  registry.add<BertOptions>("bert", "BERT of configurable size", [](const BertOptions& options) { return bert(options, "bert"); });
  add_preset<BertFamily, bert_base_options>(registry, "bert_base", "BERT with 110 million parameters: layers 12, heads 12, dim 768");
  add_preset<BertFamily, bert_tiny_options>(registry, "bert_tiny", "BERT for bytes: vocab_size 258, context 64, layers 2, heads 2, dim 64");
  registry.add<ClipOptions>("clip", "CLIP of configurable size", [](const ClipOptions& options) { return clip(options, "clip"); });
  add_preset<ClipFamily, clip_vit_b32_options>(registry, "clip_vit_b32", "CLIP with 151 million parameters: OpenAI's ViT-B/32");
  add_preset<ClipFamily, clip_tiny_options>(registry, "clip_tiny",
                                            "CLIP for bytes and images of 32 x 32: layers 2, heads 2, dim 64 in both towers");
  registry.add<InternVlOptions>("internvl", "InternVL of configurable size: vision transformer, projector, Llama",
                                [](const InternVlOptions& options) { return internvl(options, "internvl"); });
  add_preset<InternVlFamily, internvl_tiny_options>(registry, "internvl_tiny",
                                                    "InternVL for bytes and images of 32 x 32: layers 2, dim 64 in both networks");
}

}  // namespace npu_train
