// What apply_lora() does with an adapter that was read.
#pragma once

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/models/adapter.hpp"

namespace npu_train::detail {

// The options of the adapter with those that `given` adds. Error(Usage) for a rank, alpha or targets that are not those of the adapter.
LoraOptions joined_options(const LoraOptions& given, const Adapter& adapter);

// Into the parameters of a module to which the adapter was applied.
void copy_adapter(const Adapter& adapter, const ParameterSet& parameters);

// "transformer.h.0.attn.c_attn" and ".lora_A.weight", "": the parts of a name of an adapter's file; `half` is "" for another tensor, whose
// name `layer` then is.
struct AdapterName {
  std::string layer;
  std::string half;
};
AdapterName adapter_name(std::string name);

}  // namespace npu_train::detail
