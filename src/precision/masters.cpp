#include "npu_train/precision/masters.hpp"

#include <ATen/core/Tensor.h>

#include "npu_train/core/error.hpp"

namespace npu_train {

Parameter with_master(const Parameter& parameter, c10::ScalarType dtype) {
  const auto& value = parameter.value;
  check(value.scalar_type() == at::kFloat && value.requires_grad(), ErrorKind::Usage, "with_master", parameter.name, " is ",
        value.scalar_type(), value.requires_grad() ? "" : " and requires no gradient", "; allowed: fp32 parameters that are trained");
  value.mutable_grad().reset();
  const auto master = value.detach();
  value.set_data(master.to(dtype));
  return {.name = parameter.name, .value = master.set_requires_grad(true), .group = parameter.group, .computed = value};
}

}  // namespace npu_train
