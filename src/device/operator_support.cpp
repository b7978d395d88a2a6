#include "npu_train/device/operator_support.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "device/ascend_chip.hpp"
#include "device/facts/ascend_cards.hpp"
#include "device/facts/ascend_operators.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

struct ChipName {
  std::string soc;        // CANN's name of the chip: "Ascend910B3"
  std::string assumed;    // text about the chip that is assumed for a series or a card; "" if none is assumed
  int64_t gibibytes = 0;  // memory of one NPU of a card; 0: unknown
};

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

// Returns whether the text names the series 950 or a chip of it: "950", "950PR", "950DT_9591".
bool is_950(std::string_view text) {
  if (!text.starts_with("950")) return false;
  text.remove_prefix(3);
  if (text.empty()) return true;
  if (!text.starts_with("pr") && !text.starts_with("dt")) return false;
  text.remove_prefix(2);
  return text.empty() || (text.size() == 5 && text[0] == '_' &&
                          std::all_of(text.begin() + 1, text.end(), [](unsigned char c) { return std::isdigit(c) != 0; }));
}

// Returns the words of a card's name in lower case, without a remark in parentheses, as in "Atlas 300T (model 9000)".
std::string card_words(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, text.find('('))) {
    const bool gap = c == ' ' || c == '_' || c == '-';
    if (!gap) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (gap && !out.empty() && out.back() != ' ') out += ' ';
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

struct Card {
  std::string name, chip;
  std::vector<std::string> gibibytes;  // memory of one NPU, for each variant of the card, ascending
};

const std::vector<Card>& cards() {
  static const auto all = [] {
    std::vector<Card> out;
    for (const auto& row : facts_rows(facts::ascend_cards, "ascend_cards.tsv", 5)) {
      out.push_back({std::string(row[0]), std::string(row[1]), {}});
      if (row[3] == "-") continue;
      for (const auto variant : split_view(row[3], '|')) out.back().gibibytes.emplace_back(variant);
    }
    return out;
  }();
  return all;
}

std::string card_names() {
  std::vector<std::string> out;
  for (const auto& card : cards()) out.push_back(card.name);
  return join(out);
}

// Looks up a chip (910B3) or a series (910B), in upper or lower case, with or without "Ascend". As in common usage, "910B" is the series
// Atlas A2, not the first-generation chip that CANN calls Ascend910B. Error(Usage) with a list of names for other names.
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
          "(Atlas A2); 910_9361 to 910_9392, or 910C (Atlas A3); 950; 310P1 to 310P7, or 310P; 310B1 to 310B4, or 310B; and cards: " +
          card_names());
}

// Looks up a card ("Atlas 300I Pro"), or a chip or series as chip_by_name() does. For a card with several sizes of memory, takes the
// smallest.
ChipName chip_or_card(const std::string& text) {
  const auto words = card_words(text);
  for (const auto& card : cards()) {
    if (card_words(card.name) != words) continue;
    auto out = chip_by_name(card.chip);
    out.assumed = card.name + ": " + (out.assumed.empty() ? "taken for a " + card.chip : out.assumed);
    if (card.gibibytes.empty()) return out;
    out.gibibytes = whole_number(card.gibibytes.front()).value();
    out.assumed += "; an NPU has " + join(card.gibibytes, " or ") + " GiB";
    if (card.gibibytes.size() > 1) out.assumed += ": " + card.gibibytes.front() + " are assumed";
    return out;
  }
  return chip_by_name(text);
}

}  // namespace
}  // namespace npu_train::detail

namespace npu_train {
namespace {

struct Row {
  std::string_view status, listed, series, dtypes;
};

const std::unordered_map<std::string_view, Row>& table() {
  static const auto rows = [] {
    std::unordered_map<std::string_view, Row> out;
    for (const auto& c : detail::facts_rows(facts::ascend_operators, "ascend_operators.tsv", 5))
      out.emplace(c[0], Row{c[1], c[2], c[3], c[4]});
    return out;
  }();
  return rows;
}

// Returns whether an NPU computes the operation with a single kernel, even if the host uses another operator for it.
bool is_one_kernel_there(const std::string& name) {
  return name.starts_with("_scaled_dot_product") || name == "scaled_dot_product_attention" || name.starts_with("mkldnn_");
}

}  // namespace

bool is_of_the_cpu(const std::string& library, const std::string& name) {
  return library == "mkldnn" || library == "mkl" || library == "onednn" || name.find("mkldnn") != std::string::npos ||
         name.find("_for_cpu") != std::string::npos;
}

namespace {

constexpr const char* kNotForSeries = "the vendor's list does not name it for this series of chips";
constexpr const char* kKernelThough = "the vendor's list says unsupported, but a kernel is registered: test it";

OperatorFacts judged(const Row& row, bool named_for_series) {
  if (row.listed == "unsupported") {
    if (row.status == "native") return {.support = OperatorSupport::Limited, .limits = kKernelThough};
    return {.support = OperatorSupport::Unsupported};
  }
  if (row.listed == "custom") return {.support = OperatorSupport::Custom};
  if (row.status == "cpu_fallback" || row.listed == "cpu_fallback") return {.support = OperatorSupport::CpuFallback};
  // This rule also applies to composite operators, because the vendor's list limits APIs, not kernels.
  if (!named_for_series) return {.support = OperatorSupport::Limited, .limits = kNotForSeries};
  if (row.listed == "limited") return {.support = OperatorSupport::Limited};
  return {.support = row.status == "composite" ? OperatorSupport::Composite : OperatorSupport::Native};
}

}  // namespace

const char* support_name(OperatorSupport support) {
  constexpr const char* names[] = {"native", "composite", "limited", "cpu_fallback", "unsupported", "custom", "unknown"};
  return names[static_cast<size_t>(support)];
}

AscendOperators::AscendOperators(const std::string& soc, const std::string& torch) {
  auto chip = detail::chip_or_card(soc);
  const std::array known = {"2.11", "2.12", "2.13"};
  check(std::find(known.begin(), known.end(), torch) != known.end(), ErrorKind::Usage, "torch", "no table of torch_npu for '", torch,
        "'; there is one for 2.11 to 2.13");
  soc_ = std::move(chip.soc);
  assumed_ = std::move(chip.assumed);
  memory_ = chip.gibibytes << 30;
  bf16_ = detail::ascend_chip(soc_).value().bf16;
  const bool a3 = soc_.starts_with("Ascend910_93"), next = soc_.starts_with("Ascend950");
  column_ = a3 ? 1 : next ? 2 : 0;
  if (!a3 && !next && !soc_.starts_with("Ascend910B"))
    assumed_ += std::string(assumed_.empty() ? "" : "; ") + "the vendor's list of APIs does not name this series: that of Atlas A2 is used";
}

OperatorFacts AscendOperators::find(const std::string& library, const std::string& name, const std::string& overload) const {
  if (is_one_kernel_there(name)) return {.support = OperatorSupport::Native};
  // npu_train's operators consist of portable ATen operators, and CPU-only kernels have portable equivalents.
  if (library == "npu_train" || is_of_the_cpu(library, name)) return {.support = OperatorSupport::Composite, .composite = true};
  if (library != "aten" && library != "prims") return {.support = OperatorSupport::Custom};
  auto found = table().find(overload.empty() ? name : name + "." + overload);
  if (found == table().end()) found = table().find(name);
  if (found == table().end()) return {};
  const auto& row = found->second;
  auto out = judged(row, row.series == "-" || row.series[static_cast<size_t>(column_)] != 'N');
  out.composite = row.status == "composite";
  for (auto rest = row.dtypes; rest != "-" && !rest.empty();) {
    const auto end = std::min(rest.find('|'), rest.size());
    out.dtypes.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
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
