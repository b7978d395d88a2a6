// Operators of the old path (aclopCompileAndExecute). A call describes its operator: a type by name, tensors, and attributes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime.hpp"

namespace sim_cann {

struct OldTensor {
  int dtype;  // AscendCL's number
  std::vector<int64_t> sizes;
  void* data;                                 // nullptr: the tensor is absent
  std::shared_ptr<std::vector<char>> host{};  // owns the data of a host tensor
};
struct OldCall {
  std::string type;
  std::vector<OldTensor> in, out;
  std::map<std::string, std::vector<int64_t>> integers;  // attributes that are integers
  std::map<std::string, float> floats;
};
using OldOperator = void (*)(const OldCall&);

/// Registers an operator of the old path. libopapi.so registers the operators that compute.
SIM_CANN_API bool play_old_operator(const char* type, OldOperator run);

}  // namespace sim_cann
