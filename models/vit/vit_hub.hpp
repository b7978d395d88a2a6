// The config.json of ViT and of DeiT, a ViT with a distillation token.
#pragma once

#include "models/hub/hub_reader.hpp"

namespace npu_train::detail {

void read_vit(const Json& config, HubNetwork& out);
void read_deit(const Json& config, HubNetwork& out);
// See ModelFamily::read_timm.
bool read_timm_vit(const std::string& architecture, const Json& config, HubReader& file, HubNetwork& out);

}  // namespace npu_train::detail
