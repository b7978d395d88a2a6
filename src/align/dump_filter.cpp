#include <algorithm>

#include "align/dump_recorder.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train::detail {

DumpFilter::DumpFilter(const DumpOptions& options) : options_(options), scope_open_(options.scope.empty()) {}

bool DumpFilter::enter(const std::string& base) {
  if (!options_.scope.empty() && name_matches(base, options_.scope.front())) scope_open_ = true;
  return scope_open_ && has(base);
}

void DumpFilter::leave(const std::string& base) {
  if (!options_.scope.empty() && name_matches(base, options_.scope.back())) scope_open_ = false;
}

bool DumpFilter::has(const std::string& base) const {
  const bool listed = options_.list.empty() ||
                      std::any_of(options_.list.begin(), options_.list.end(), [&](const auto& p) { return name_matches(base, p); });
  if (!listed || options_.sample >= 1) return listed;
  const auto drawn = derive_seed(static_cast<uint64_t>(options_.seed), "dump layer " + base);
  return static_cast<double>(drawn >> 11) * 0x1.0p-53 < options_.sample;
}

bool DumpFilter::open(const std::string& word, const std::vector<std::string>& group) const {
  const auto& words = options_.data_mode;
  const auto named = [&](const std::string& w) { return std::find(words.begin(), words.end(), w) != words.end(); };
  return words.empty() || named(word) || (std::none_of(group.begin(), group.end(), named) && !only_extras());
}

bool DumpFilter::only_extras() const {
  return std::all_of(options_.data_mode.begin(), options_.data_mode.end(),
                     [](const std::string& w) { return w == "parameters_grad" || w == "optimizer"; });
}

bool DumpFilter::extra(const char* word) const {
  const auto& words = options_.data_mode;
  return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace npu_train::detail
