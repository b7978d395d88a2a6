#include "device/chip_name.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

// Chip names of torch_npu and CANN, without "Ascend".
constexpr std::array<std::string_view, 28> kChips = {"910A",     "910ProA",  "910ProB",  "910PremiumA", "910B1",    "910B2",    "910B2C",
                                                     "910B3",    "910B4",    "910B4_1",  "910_9361",    "910_9362", "910_9371", "910_9372",
                                                     "910_9381", "910_9382", "910_9391", "910_9392",    "310P1",    "310P2",    "310P3",
                                                     "310P4",    "310P5",    "310P7",    "310B1",       "310B2",    "310B3",    "310B4"};

struct SeriesName {
  std::string_view name, chip, series;
};

constexpr std::array kSeries = {
    SeriesName{"910B", "910B1", "Atlas A2"},        SeriesName{"910C", "910_9392", "Atlas A3"},
    SeriesName{"910_93", "910_9392", "Atlas A3"},   SeriesName{"910_93xx", "910_9392", "Atlas A3"},
    SeriesName{"310P", "310P3", "Atlas inference"}, SeriesName{"310B", "310B1", "Atlas 200I A2"},
};

// True for "950", "950PR", "950DT_9591".
bool is_950(std::string_view text) {
  if (!text.starts_with("950")) return false;
  text.remove_prefix(3);
  if (text.empty()) return true;
  if (!text.starts_with("pr") && !text.starts_with("dt")) return false;
  text.remove_prefix(2);
  return text.empty() || (text.size() == 5 && text[0] == '_' &&
                          std::all_of(text.begin() + 1, text.end(), [](unsigned char c) { return std::isdigit(c) != 0; }));
}

}  // namespace

ChipName chip_by_name(const std::string& text) {
  auto name = to_lower(text);
  if (name.starts_with("ascend")) name = name.substr(6);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto chip : kChips)
    if (to_lower(chip) == name) return {"Ascend" + std::string(chip), ""};
  for (const auto& s : kSeries)
    if (to_lower(s.name) == name)
      return {"Ascend" + std::string(s.chip),
              std::string(s.name) + " is a series (" + std::string(s.series) + "): taken for a " + std::string(s.chip)};
  if (is_950(name)) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    return {"Ascend" + name, ""};
  }
  throw Error(
      ErrorKind::Usage, "soc",
      "'" + text +
          "' is no Ascend chip that is known here; known are 910A, 910ProA, 910ProB, 910PremiumA; 910B1 to 910B4, or the series 910B "
          "(Atlas A2); 910_9361 to 910_9392, or 910C (Atlas A3); 950; 310P1 to 310P7, or 310P; 310B1 to 310B4, or 310B");
}

}  // namespace npu_train::detail
