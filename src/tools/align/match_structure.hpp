// Calls of two networks with the same structure and other names: as this library and as timm or Hugging Face call their layers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/align/dump_reader.hpp"

namespace npu_train::detail {

using IndexPairs = std::vector<std::pair<size_t, size_t>>;

constexpr size_t kMostAligned = 4'000'000;  // products of the lengths of two sequences

// Positions of the longest common subsequence; nothing above kMostAligned.
IndexPairs longest_common(const std::vector<std::string>& a, const std::vector<std::string>& b);

// "encoder.ln.weight" of a parameter or its gradient in a call; a separate parameter belongs to the module around it.
std::string parameter_name(const DumpCall& call, const DumpItem& item);

// Whether one of the two keeps its weight as [inputs, outputs] and the other as [outputs, inputs]: Conv1D of transformers and a linear
// layer.
bool keeps_transposed(const DumpCall& a, const DumpCall& b);

// Statistics of BatchNorm, which some dumps hold with the parameters; msprobe's do not.
bool is_running_statistic(const std::string& name);

// Pairs the calls of layers with parameters among those that are open (1), in order: the forward calls whose parameters have equal numbers
// of elements, first those with outputs of equal size too; then their backward calls and the gradients of their parameters.
IndexPairs match_structure(const DumpStep& a, const DumpStep& b, const std::vector<char>& open_a, const std::vector<char>& open_b);

}  // namespace npu_train::detail
