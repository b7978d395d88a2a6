// Code that serves NPUs already: a rewrite of its CUDA side would break it.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {

/// Functions, statements at the top of the file, members of a class and single logical lines that name an NPU: the texts "npu", "npu:0" and
/// "hccl", names with the part npu (torch.npu, is_npu_available, MULTI_NPU), torch.accelerator, getattr(torch, device, torch.cuda); and the
/// functions for CUDA to which the file has one for NPUs (is_cuda_available next to is_npu_available). Ranges of bytes, sorted by their
/// beginning, joined where they overlap.
std::vector<std::pair<uint32_t, uint32_t>> npu_ranges(std::string_view text, const std::vector<Token>& tokens);

/// The same of the variable ASCEND_RT_VISIBLE_DEVICES.
std::vector<std::pair<uint32_t, uint32_t>> variable_ranges(std::string_view text, const std::vector<Token>& tokens);

/// The place of the first use of torch.npu, torch_npu or torch.accelerator; -1: none.
int64_t first_npu_use(std::string_view text, const std::vector<Token>& tokens);

}  // namespace npu_train::detail::scan
