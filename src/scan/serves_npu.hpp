// Code that serves NPUs already: a rewrite of its CUDA side would break it.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "scan/tokens.hpp"

namespace npu_train::detail::scan {

/// Functions, statements at the top of the file and single logical lines that name an NPU: the texts "npu", "npu:0" and "hccl", torch.npu,
/// is_npu, torch_npu, torch.accelerator. Ranges of bytes, sorted by their beginning, joined where they overlap.
std::vector<std::pair<uint32_t, uint32_t>> npu_ranges(std::string_view text, const std::vector<Token>& tokens);

/// The place of the first use of torch.npu, torch_npu or torch.accelerator; -1: none.
int64_t first_npu_use(std::string_view text, const std::vector<Token>& tokens);

}  // namespace npu_train::detail::scan
