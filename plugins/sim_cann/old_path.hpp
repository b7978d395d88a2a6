// Operators of the old path (aclopCompileAndExecute), which describe
// themselves: a type by name, tensors, and attributes.
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
  void* data;                                 // null: the tensor is absent
  std::shared_ptr<std::vector<char>> host{};  // holds the data of a tensor of the host
};
struct OldCall {
  std::string type;
  std::vector<OldTensor> in, out;
  std::map<std::string, std::vector<int64_t>> integers;  // attributes
  std::map<std::string, float> floats;
};
using OldOperator = void (*)(const OldCall&);

/// libopapi.so has those that compute.
SIM_CANN_API bool play_old_operator(const char* type, OldOperator run);

}  // namespace sim_cann
