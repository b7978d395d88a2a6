/// The built-in networks by name.
#pragma once

#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Adds resnet18, resnet34, resnet50, resnet101, resnet152 (ResNetOptions), vit (VitOptions) and its presets vit_tiny, vit_small, vit_b16,
/// vit_b16_ascend, vit_b32, vit_l16, vit_tiny_cifar10 (other defaults, all sizes can be changed), torchscript (TorchScriptOptions), gpt2,
/// gpt2_124m, gpt2_tiny (Gpt2Options), llama, llama_tiny (LlamaOptions), glm, glm_6b, glm_tiny (GlmOptions), bert, bert_base, bert_tiny
/// (BertOptions), clip, clip_vit_b32, clip_tiny (ClipOptions), and internvl, internvl_tiny (InternVlOptions).
void add_builtin_models(ModelRegistry& registry);

}  // namespace npu_train
