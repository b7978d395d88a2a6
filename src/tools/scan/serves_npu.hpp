// Finds code that already supports NPUs: a rewrite of its CUDA part would break it.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {

/// Returns the functions, top-level statements, members of a class and logical lines that name an NPU: the texts "npu", "npu:0" and "hccl",
/// names with the part npu (torch.npu, is_npu_available, MULTI_NPU), torch.accelerator, getattr(torch, device, torch.cuda). Includes
/// functions for CUDA for which the file has a counterpart for NPUs (is_cuda_available and is_npu_available). Byte ranges, sorted by their
/// beginning and joined if they overlap.
std::vector<std::pair<uint32_t, uint32_t>> npu_ranges(std::string_view text, const std::vector<Token>& tokens);

/// Returns the same ranges for the variable ASCEND_RT_VISIBLE_DEVICES.
std::vector<std::pair<uint32_t, uint32_t>> variable_ranges(std::string_view text, const std::vector<Token>& tokens);

/// Returns the position of the first use of torch.npu, torch_npu or torch.accelerator; -1: none.
int64_t first_npu_use(std::string_view text, const std::vector<Token>& tokens);

}  // namespace npu_train::detail::scan
