#include <string_view>
#include <unordered_map>

#include "device/facts/ascend_operators.hpp"
#include "sim.hpp"

namespace npu_train::sim {
namespace {

struct Row {
  std::string_view status, listed, dtypes;
};

std::string_view next(std::string_view& line, char end) {
  const auto at = line.find(end);
  const auto out = line.substr(0, at);
  line.remove_prefix(at == std::string_view::npos ? line.size() : at + 1);
  return out;
}

const std::unordered_map<std::string_view, Row>& table() {
  static const auto* rows = [] {
    auto* out = new std::unordered_map<std::string_view, Row>;
    std::string_view text = facts::ascend_operators;
    while (!text.empty()) {
      std::string_view line = next(text, '\n');
      if (line.empty() || line[0] == '#') continue;
      const auto name = next(line, '\t'), status = next(line, '\t'), listed = next(line, '\t');
      next(line, '\t');  // by series: the simulator has no more than one table for all
      out->emplace(name, Row{status, listed, line});
    }
    return out;
  }();
  return *rows;
}

}  // namespace

OperatorRule rule_of(const std::string& name, const std::string& overload) {
  // the host's forms of what the chip has as one kernel
  if (name.starts_with("_scaled_dot_product_flash_attention_for_cpu")) return {Support::Native, false, {}};
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
