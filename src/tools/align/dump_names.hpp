// The names that msprobe gives to operators and layers.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

namespace npu_train::detail {

// "Functional.relu", "Torch.add", "Tensor.add_", "Npu_train.batch_norm_act" of an operator's library and name.
std::string operator_base(const std::string& library, const std::string& name);

// "torch.float32", as Python writes a dtype.
std::string dtype_text(c10::ScalarType type);

// Positions of an operator's `count` arguments in the order of Python's function.
std::vector<size_t> argument_order(const std::string& name, size_t count);

// The class of a layer of which only an operator is known: "Conv2d" of conv2d, "Linear" of addmm, "Sgd" of sgd.
std::string class_of_operator(const std::string& name);

}  // namespace npu_train::detail
