#include "npu_train/device/operator_support.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>

#include "device/ascend_chip.hpp"
#include "device/facts/ascend_operators.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

struct Row {
  std::string_view status, listed, series, dtypes;
};

std::string_view cut(std::string_view& text, char end) {
  const auto at = text.find(end);
  const auto out = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return out;
}

const std::unordered_map<std::string_view, Row>& table() {
  static const auto rows = [] {
    std::unordered_map<std::string_view, Row> out;
    std::string_view text = facts::ascend_operators;
    while (!text.empty()) {
      auto line = cut(text, '\n');
      if (line.empty() || line[0] == '#') continue;
      const auto name = cut(line, '\t'), status = cut(line, '\t'), listed = cut(line, '\t'), series = cut(line, '\t');
      out.emplace(name, Row{status, listed, series, line});
    }
    return out;
  }();
  return rows;
}

// What the host runs instead of one kernel of the NPU.
bool is_one_kernel_there(const std::string& name) {
  return name.starts_with("_scaled_dot_product") || name == "scaled_dot_product_attention" || name.starts_with("mkldnn_");
}

OperatorSupport support_of(const Row& row) {
  if (row.listed == "unsupported") return OperatorSupport::Unsupported;
  if (row.listed == "custom") return OperatorSupport::Custom;
  if (row.status == "cpu_fallback" || row.listed == "cpu_fallback") return OperatorSupport::CpuFallback;
  if (row.status == "composite") return OperatorSupport::Composite;
  return row.listed == "limited" ? OperatorSupport::Limited : OperatorSupport::Native;
}

}  // namespace

const char* support_name(OperatorSupport support) {
  constexpr const char* names[] = {"native", "composite", "limited", "cpu_fallback", "unsupported", "custom", "unknown"};
  return names[static_cast<size_t>(support)];
}

AscendOperators::AscendOperators(const std::string& soc, const std::string& torch)
    : soc_(soc.starts_with("Ascend") ? soc : "Ascend" + soc) {
  const auto chip = detail::ascend_chip(soc_);
  check(chip.has_value(), ErrorKind::Usage, "soc", "'", soc,
        "' is no Ascend chip that is known here; known are 910A, 910B1 to 910B4 (A2), ", "910_93xx (A3), 950, 310P and 310B");
  const std::array known = {"2.11", "2.12", "2.13"};
  check(std::find(known.begin(), known.end(), torch) != known.end(), ErrorKind::Usage, "torch", "no table of torch_npu for '", torch,
        "'; there is one for 2.11 to 2.13");
  bf16_ = chip->bf16;
  column_ = soc_.starts_with("Ascend910_93") ? 1 : soc_.starts_with("Ascend950") ? 2 : 0;
}

OperatorFacts AscendOperators::find(const std::string& library, const std::string& name, const std::string& overload) const {
  if (library == "npu_train") return {.support = OperatorSupport::Composite};  // ours run anywhere, of ATen's operators
  if (library != "aten" && library != "prims") return {.support = OperatorSupport::Custom};
  if (is_one_kernel_there(name)) return {.support = OperatorSupport::Native};
  auto found = table().find(overload.empty() ? name : name + "." + overload);
  if (found == table().end()) found = table().find(name);
  if (found == table().end()) return {};
  const auto& row = found->second;
  OperatorFacts out{.support = support_of(row)};
  for (auto dtypes = row.dtypes; dtypes != "-" && !dtypes.empty();) out.dtypes.emplace_back(cut(dtypes, '|'));
  if (row.series != "-" && row.series[static_cast<size_t>(column_)] == 'N' && out.support == OperatorSupport::Native) {
    out.support = OperatorSupport::Limited;
    out.limits = "the vendor's list does not name it for this series of chips";
  }
  return out;
}

std::string listed_dtype(const std::string& dtype_name) {
  static const std::map<std::string, std::string> words = {{"Float", "fp32"},
                                                           {"Half", "fp16"},
                                                           {"BFloat16", "bf16"},
                                                           {"Double", "fp64"},
                                                           {"Long", "int64"},
                                                           {"Int", "int32"},
                                                           {"Short", "int16"},
                                                           {"Char", "int8"},
                                                           {"Byte", "uint8"},
                                                           {"Bool", "bool"},
                                                           {"ComplexFloat", "complex64"},
                                                           {"ComplexDouble", "complex128"}};
  const auto found = words.find(dtype_name);
  return found != words.end() ? found->second : to_lower(dtype_name);
}

}  // namespace npu_train
