// Pairs calls of two networks with the same structure and different names, such as those of this library and of timm or Hugging Face.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/align/dump_reader.hpp"

namespace npu_train::detail {

using IndexPairs = std::vector<std::pair<size_t, size_t>>;

constexpr size_t kMostAligned = 4'000'000;  // limit of the product of the lengths of two sequences

// Returns the positions of the longest common subsequence in `a` and `b`; empty above kMostAligned.
IndexPairs longest_common(const std::vector<std::string>& a, const std::vector<std::string>& b);

// Returns the name of the parameter that `item` contains, or whose gradient it contains, as in "encoder.ln.weight". A separate parameter
// belongs to the module around it.
std::string parameter_name(const DumpCall& call, const DumpItem& item);

// Whether one of the calls stores its weight as [inputs, outputs] and the other as [outputs, inputs]: Conv1D of transformers and a linear
// layer.
bool keeps_transposed(const DumpCall& a, const DumpCall& b);

// Whether `name` is a running statistic of BatchNorm. Some dumps list running statistics with the parameters; msprobe's do not.
bool is_running_statistic(const std::string& name);

// Pairs open calls (those marked 1) of layers with parameters, in order. First, it pairs forward calls whose parameters and outputs have
// equal sizes, and then forward calls whose parameters have equal sizes. Last, it pairs the backward calls of these layers and the
// gradients of their parameters.
IndexPairs match_structure(const DumpStep& a, const DumpStep& b, const std::vector<char>& open_a, const std::vector<char>& open_b);

}  // namespace npu_train::detail
