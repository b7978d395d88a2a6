// The config.json of Llama, of Mistral (a Llama with a sliding window), and of other networks with the same keys.
#pragma once

#include "models/hub/hub_reader.hpp"

namespace npu_train::detail {

// Values that transformers uses for missing keys.
struct RotaryDefaults {
  int64_t kv_heads = 0;  // 0: as many as there are heads
  int64_t hidden = 0;
  int64_t context = 0;
};

// Reads the keys that Llama and its relatives share into the options of a llama.
void read_rotary_decoder(const Json& config, HubReader& file, HubNetwork& out, const RotaryDefaults& defaults);

void read_llama(const Json& config, HubNetwork& out);
void read_mistral(const Json& config, HubNetwork& out);

}  // namespace npu_train::detail
