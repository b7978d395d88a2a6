// Functions for reading an adapter, which apply_lora() uses.
#pragma once

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/models/lora.hpp"

namespace npu_train::detail {

// Returns the options of the adapter, with additions from `given`. Error(Usage) for a rank, alpha or targets that differ from the
// adapter's.
LoraOptions joined_options(const LoraOptions& given, const Adapter& adapter);

// Copies the tensors into a module that has the adapter's layers already.
void copy_adapter(const Adapter& adapter, const ParameterSet& parameters);

// The parts of a tensor name in an adapter's file: "transformer.h.0.attn.c_attn" and ".lora_A.weight". For other tensors, `half` is "" and
// `layer` is the complete name.
struct AdapterName {
  std::string layer;
  std::string half;
};
AdapterName adapter_name(std::string name);

}  // namespace npu_train::detail
