// Named tensors in a fixed order: the fields of a Batch, the outputs of a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {

using NamedFields = std::vector<std::pair<std::string, at::Tensor>>;

// Returns the iterator of the field, or the end.
template <class Fields>
auto field_named(Fields& fields, const std::string& name) {
  return std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == name; });
}

inline std::vector<std::string> names_of(const NamedFields& fields) {
  std::vector<std::string> out;
  for (const auto& field : fields) out.push_back(field.first);
  return out;
}

// Returns the names for error messages.
inline std::string names_text(const NamedFields& fields) { return fields.empty() ? "none" : join(names_of(fields)); }

}  // namespace npu_train::detail
