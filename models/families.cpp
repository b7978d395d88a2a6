#include "models/families.hpp"

#include "npu_train/models/registry.hpp"

namespace npu_train {
namespace detail {

ModelFamily resnet_family(), vit_family(), torchscript_family(), gpt2_family(), llama_family(), glm_family(), bert_family(), clip_family(),
    internvl_family(), qwen2_family();

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> all = {resnet_family(), vit_family(),  torchscript_family(), gpt2_family(),     llama_family(),
                                               glm_family(),    bert_family(), clip_family(),        internvl_family(), qwen2_family()};
  return all;
}

}  // namespace detail

void add_builtin_models(ModelRegistry& registry) {
  for (const auto& family : detail::model_families()) family.add(registry);
}

}  // namespace npu_train
