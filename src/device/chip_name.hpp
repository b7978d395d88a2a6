// Ascend chips by their common names.
#pragma once

#include <string>

namespace npu_train::detail {

struct ChipName {
  std::string soc;      // CANN's name of the chip: "Ascend910B3"
  std::string assumed;  // the assumption made if `text` names a series, else ""
};

// Looks up a chip (910B3) or a series (910B), in any case, with or without "Ascend". As in common usage, "910B" is the series Atlas A2, not
// the first-generation chip that CANN calls Ascend910B. Error(Usage) for other names, with a list.
ChipName chip_by_name(const std::string& text);

}  // namespace npu_train::detail
