#include <string_view>
#include <unordered_map>

#include "device/facts/ascend_operators.hpp"
#include "npu_train/core/facts_table.hpp"
#include "sim.hpp"

namespace npu_train::sim {
namespace {

struct Row {
  std::string_view status, listed, dtypes;
};

const std::unordered_map<std::string_view, Row>& table() {
  static const auto* rows = [] {
    auto* out = new std::unordered_map<std::string_view, Row>;
    for (const auto line : detail::split_view(facts::ascend_operators, '\n')) {
      if (line.empty() || line[0] == '#') continue;
      const auto cells = detail::split_view(line, '\t');  // the series column is not used: the simulator has one table for all chips
      out->emplace(cells[0], Row{cells[1], cells[2], cells[4]});
    }
    return out;
  }();
  return *rows;
}

}  // namespace

OperatorRule rule_of(const std::string& name, const std::string& overload) {
  // host forms of operators that have one kernel on the chip
  if (name.starts_with("_scaled_dot_product_flash_attention_for_cpu") || name.starts_with("_thnn_fused_"))
    return {Support::Native, false, {}};
  const auto found = table().find(overload.empty() ? name : name + "." + overload);
  if (found == table().end()) return {};
  const Row& row = found->second;
  const auto support = row.listed == "unsupported" ? Support::Unsupported
                       : row.status == "native"    ? Support::Native
                       : row.status == "composite" ? Support::Composite
                                                   : Support::CpuFallback;
  return {support, row.status == "cpu_fallback", row.dtypes == "-" ? "" : std::string(row.dtypes)};
}

std::vector<std::pair<std::string, std::string>> native_operators() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [full, row] : table()) {
    if (row.status != "native") continue;
    const auto dot = full.find('.');
    out.emplace_back(full.substr(0, dot), dot == std::string_view::npos ? "" : full.substr(dot + 1));
  }
  return out;
}

}  // namespace npu_train::sim
