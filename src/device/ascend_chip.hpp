// The properties of Ascend chips by name, for the real NPU and the simulated one.
#pragma once

#include <optional>
#include <string>

namespace npu_train::detail {

struct AscendChip {
  bool bf16;           // multiplies bf16
  bool saturates;      // by default, an overflow gives the largest finite number
  bool can_choose;     // supports both overflow modes
  bool rings;          // the NPUs of a machine form two rings of four; HCCL connects only 1, 2, 4 or 8 of them
  bool graphs = true;  // can capture graphs; source: the table of products at aclmdlRICaptureBegin in CANN's documents
};

// Looks up a chip by CANN's name (aclrtGetSocName), such as Ascend910B3, Ascend910_9392, Ascend310P3. Returns nullopt for an unknown
// family. Ascend910B, without a digit, belongs to the first generation.
std::optional<AscendChip> ascend_chip(const std::string& soc);

// Returns the chip with the name `soc`. For an unknown name, warns and assumes a chip with bf16 and IEEE 754 overflow. For an empty name,
// assumes a chip without bf16 on which overflow saturates.
AscendChip assumed_chip(const std::string& soc);

// Returns whether overflow saturates on `chip` in this process. If the chip supports both modes, INF_NAN_MODE_ENABLE and
// INF_NAN_MODE_FORCE_DISABLE select the mode, as in torch_npu. Error(Device) for a combination that torch_npu refuses.
bool saturates_here(const AscendChip& chip);

}  // namespace npu_train::detail
