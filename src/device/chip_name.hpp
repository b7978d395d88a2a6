// Ascend chips as people name them.
#pragma once

#include <string>

namespace npu_train::detail {

struct ChipName {
  std::string soc;      // as CANN names the chip: "Ascend910B3"
  std::string assumed;  // where `text` names a series: which chip it is taken for
};

// A chip (910B3) or a series (910B), in any case, with or without "Ascend". "910B" is the series Atlas A2, as its users say it, and not the
// first generation's chip that CANN calls Ascend910B. Error(Usage) for other names, with a list.
ChipName chip_by_name(const std::string& text);

}  // namespace npu_train::detail
