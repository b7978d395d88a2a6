#include "npu_train/base/outputs.hpp"

#include "base/named_fields.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
Outputs::Outputs(at::Tensor only) : fields_{{"output", std::move(only)}} {}

bool Outputs::has(const std::string& name) const { return detail::field_named(fields_, name) != fields_.end(); }

const at::Tensor& Outputs::at(const std::string& name) const {
  const auto found = detail::field_named(fields_, name);
  if (found != fields_.end()) return found->second;
  throw Error(ErrorKind::Usage, "Outputs", "the model has no output '" + name + "'; it has: " + detail::names_text(fields_));
}

const at::Tensor& Outputs::first() const {
  static const at::Tensor none;
  return fields_.empty() ? none : fields_.front().second;
}

}  // namespace npu_train
