// The properties of Ascend chips by name, for the real NPU and the simulated one.
#pragma once

#include <optional>
#include <string>

namespace npu_train::detail {

struct AscendChip {
  bool bf16;        // multiplies bf16
  bool saturates;   // an overflow gives the largest number, where the program does not choose
  bool can_choose;  // has both ways
};

// By the name that CANN gives (aclrtGetSocName), such as Ascend910B3, Ascend910_9392, Ascend310P3. Nothing for a name that follows none of
// the families; note that Ascend910B, without a digit, is of the first generation.
std::optional<AscendChip> ascend_chip(const std::string& soc);

// Whether `chip` saturates in this process, which torch_npu decides by INF_NAN_MODE_ENABLE and INF_NAN_MODE_FORCE_DISABLE. Error(Device)
// for a combination that torch_npu refuses.
bool saturates_here(const AscendChip& chip);

}  // namespace npu_train::detail
