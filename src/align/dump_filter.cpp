#include <algorithm>

#include "align/dump_recorder.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train::detail {

namespace {

// msprobe's whole names, as "Module.conv1.Conv2d.forward.0" and "Functional.relu.0.forward", mean the call in both directions.
std::vector<std::string> without_direction(std::vector<std::string> patterns) {
  for (auto& p : patterns)
    for (const std::string word : {".forward", ".backward", ".parameters_grad"})
      if (const auto at = p.rfind(word);
          at != std::string::npos && p.find_first_not_of("0123456789.", at + word.size()) == std::string::npos)
        p.erase(at);
  return patterns;
}

}  // namespace

DumpFilter::DumpFilter(const DumpOptions& options)
    : options_(options),
      scope_(without_direction(options.scope)),
      list_(without_direction(options.list)),
      fits_(list_.size(), false),
      scope_open_(options.scope.empty()) {}

std::vector<std::string> DumpFilter::unmatched() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < list_.size(); ++i)
    if (!fits_[i]) out.push_back(options_.list[i]);
  return out;
}

bool DumpFilter::enter(const std::string& base) {
  if (!scope_.empty() && call_matches(base, scope_.front())) scope_open_ = true;
  const bool listed = has(base);  // in a closed scope too: the list's names are known all the same
  return scope_open_ && listed;
}

void DumpFilter::leave(const std::string& base) {
  if (!scope_.empty() && call_matches(base, scope_.back())) scope_open_ = false;
}

bool DumpFilter::has(const std::string& base) const {
  bool listed = list_.empty();
  for (size_t i = 0; i < list_.size(); ++i)
    if (call_matches(base, list_[i])) listed = fits_[i] = true;
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
