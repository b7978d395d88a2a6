// The networks of Hugging Face that this library has: for each `model_type` every key of its config.json.
#pragma once

#include "hub_reader.hpp"

namespace npu_train::detail {

// Readers for language models and for encoders of texts and images; hub_network() selects one by model_type.
void read_llama(const Json& config, HubNetwork& out);
void read_mistral(const Json& config, HubNetwork& out);
void read_gpt2(const Json& config, HubNetwork& out);
void read_chatglm(const Json& config, HubNetwork& out);
void read_bert(const Json& config, HubNetwork& out);
void read_clip(const Json& config, HubNetwork& out);
void read_vit(const Json& config, HubNetwork& out);
void read_timm(const Json& config, HubNetwork& out);
void read_deit(const Json& config, HubNetwork& out);
void read_resnet(const Json& config, HubNetwork& out);

}  // namespace npu_train::detail
