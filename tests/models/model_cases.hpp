// Shared parts of the tests of several networks.
#pragma once

#include <ATen/ops/equal.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "npu_train/nn/model.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train::testing {

inline at::Tensor parameter(const Model& model, const std::string& name) { return parameters_of(*model.module).find(name)->value; }

/// Returns copies of the parameters' gradients.
inline std::vector<at::Tensor> gradients_of(const Model& model) {
  std::vector<at::Tensor> out;
  for (const auto& p : parameters_of(*model.module)) out.push_back(p.value.grad().clone());
  return out;
}

inline void check_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i], b[i]));
}

/// Checks that `run` throws an error of this kind, with `words` in its message.
template <class Run>
void says(const Run& run, ErrorKind kind, const std::string& words) {
  const auto error = error_of(run);
  CHECK((error.kind() == kind));
  CHECK_MESSAGE(has(error.what(), words), error.what());
}

}  // namespace npu_train::testing
