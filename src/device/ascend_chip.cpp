#include "device/ascend_chip.hpp"

#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train::detail {
namespace {

struct Family {
  std::string_view prefix;
  bool then_digit;
  AscendChip chip;
};

// Families by prefix; the first match applies.
constexpr std::array kFamilies = {
    Family{"Ascend910B", true, {.bf16 = true, .saturates = false, .can_choose = true, .rings = false}},    // Atlas A2
    Family{"Ascend910_93", true, {.bf16 = true, .saturates = false, .can_choose = true, .rings = false}},  // Atlas A3
    Family{"Ascend950", false, {.bf16 = true, .saturates = false, .can_choose = false, .rings = false}},
    Family{"Ascend310B", true, {.bf16 = true, .saturates = true, .can_choose = false, .rings = false}},
    Family{"Ascend310P", false, {.bf16 = false, .saturates = true, .can_choose = false, .rings = false}},
    Family{
        "Ascend910",
        false,
        {.bf16 = false, .saturates = true, .can_choose = false, .rings = true, .graphs = false}},  // Atlas training, the first generation
};

bool is_set(const char* variable, char value) {
  const char* set = std::getenv(variable);
  return set != nullptr && set[0] == value && set[1] == '\0';
}

}  // namespace

std::optional<AscendChip> ascend_chip(const std::string& soc) {
  for (const auto& f : kFamilies) {
    if (!soc.starts_with(f.prefix)) continue;
    if (f.then_digit && (soc.size() == f.prefix.size() || std::isdigit(static_cast<unsigned char>(soc[f.prefix.size()])) == 0)) continue;
    return f.chip;
  }
  return std::nullopt;
}

AscendChip assumed_chip(const std::string& soc) {
  if (const auto known = ascend_chip(soc)) return *known;
  if (soc.empty()) return {.bf16 = false, .saturates = true, .can_choose = false, .rings = false};
  warn_once("npu/chip", "npu: the chip '" + soc + "' is not known here; it is taken for one with bf16 and IEEE 754 overflow");
  return {.bf16 = true, .saturates = false, .can_choose = false, .rings = false};
}

bool saturates_here(const AscendChip& chip) {
  if (!chip.can_choose) return chip.saturates;
  const bool forced = is_set("INF_NAN_MODE_FORCE_DISABLE", '1');
  check(forced || !is_set("INF_NAN_MODE_ENABLE", '0'), ErrorKind::Device, "INF_NAN_MODE_ENABLE",
        "it is 0, which torch_npu refuses on this chip; hint: unset it, or set INF_NAN_MODE_FORCE_DISABLE=1 too");
  return forced;
}

}  // namespace npu_train::detail
