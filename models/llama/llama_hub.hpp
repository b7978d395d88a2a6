// The config.json of Llama and of Mistral, whose network is a Llama with a window.
#pragma once

#include "models/hub/hub_reader.hpp"

namespace npu_train::detail {

void read_llama(const Json& config, HubNetwork& out);
void read_mistral(const Json& config, HubNetwork& out);

}  // namespace npu_train::detail
