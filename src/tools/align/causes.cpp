#include "tools/align/causes.hpp"

#include <map>
#include <utility>

#include "npu_train/core/facts_table.hpp"
#include "tools/align/facts/causes.hpp"

namespace npu_train::detail {
namespace {

using LikelyAndAdvice = std::pair<std::string, std::string>;

const std::map<std::string, LikelyAndAdvice>& cause_table() {
  static const auto table = [] {
    std::map<std::string, LikelyAndAdvice> out;
    for (const auto& row : facts_texts(facts::causes, "causes.tsv", 3)) out[row[0]] = {row[1], row[2]};
    return out;
  }();
  return table;
}

// Fills in all values in one pass, since a value is a user's name, which may contain braces.
std::string filled(const std::string& text, const std::vector<std::string>& values) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '{') {
      out += values.at(static_cast<size_t>(text[i + 1] - '1'));
      i += 2;
    } else {
      out += text[i];
    }
  return out;
}

}  // namespace

void add_cause(const char* name, const std::vector<std::string>& values, std::vector<std::string>& likely,
               std::vector<std::string>& advice) {
  const auto& row = cause_table().at(name);
  if (!row.first.empty()) likely.push_back(filled(row.first, values));
  if (!row.second.empty()) advice.push_back(filled(row.second, values));
}

}  // namespace npu_train::detail
