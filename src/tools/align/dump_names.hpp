// msprobe's names for operators and layers.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

namespace npu_train::detail {

// Returns "Functional.relu", "Torch.add", "Tensor.add_" or "Npu_train.batch_norm_act" for an operator's library and name.
std::string operator_base(const std::string& library, const std::string& name);

// Returns a dtype as Python writes it: "torch.float32".
std::string dtype_text(c10::ScalarType type);

// Returns the positions of an operator's `count` arguments, in the order in which the Python function takes them.
std::vector<size_t> argument_order(const std::string& name, size_t count);

// Returns the class of a layer of which only an operator is known: "Conv2d" for conv2d, "Linear" for addmm, "Sgd" for sgd.
std::string class_of_operator(const std::string& name);

}  // namespace npu_train::detail
