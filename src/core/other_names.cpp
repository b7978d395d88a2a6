#include "npu_train/core/other_names.hpp"

#include <algorithm>

#include "core/facts/other_names.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {

std::vector<std::string> keys_called(std::string_view name) {
  auto wanted = to_lower(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  std::vector<std::string> out;
  for (const auto& row : detail::facts_rows(facts::other_names, "other_names.tsv", 2))
    if (row[0] == wanted) out.emplace_back(row[1]);
  return out;
}

}  // namespace npu_train
