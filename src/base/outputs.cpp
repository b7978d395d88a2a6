#include "npu_train/base/outputs.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

auto field_named(const std::vector<Outputs::Field>& fields, const std::string& name) {
  return std::find_if(fields.begin(), fields.end(), [&](const Outputs::Field& field) { return field.first == name; });
}

}  // namespace

Outputs::Outputs(at::Tensor only) : fields_{{"output", std::move(only)}} {}

bool Outputs::has(const std::string& name) const { return field_named(fields_, name) != fields_.end(); }

const at::Tensor& Outputs::at(const std::string& name) const {
  const auto found = field_named(fields_, name);
  if (found != fields_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& field : fields_) names.push_back(field.first);
  throw Error(ErrorKind::Usage, "Outputs", "the model has no output '" + name + "'; it has: " + (names.empty() ? "none" : join(names)));
}

const at::Tensor& Outputs::first() const {
  static const at::Tensor none;
  return fields_.empty() ? none : fields_.front().second;
}

}  // namespace npu_train
