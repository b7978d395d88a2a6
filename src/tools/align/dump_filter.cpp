#include <algorithm>
#include <utility>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/core/text.hpp"
#include "tools/align/dump_recorder.hpp"

namespace npu_train::detail {

namespace {

// Removes the direction from complete names of msprobe ("Module.conv1.Conv2d.forward.0", "Functional.relu.0.forward"), so that they select
// the call in both directions.
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
      scope_fits_(scope_.size(), false),
      scope_open_(options.scope.empty()) {}

std::vector<std::string> DumpFilter::unmatched() const {
  std::vector<std::string> out;
  const auto tell = [&](const char* option, const std::string& name, const std::string& so) {
    out.push_back(std::string("dump.") + option + ": '" + name + "' matches no " + (named_values() ? "named value" : "layer or operator") +
                  " at dump.level=" + options_.level + so + nearest(name));
  };
  for (size_t i = 0; i < list_.size(); ++i)
    if (!fits_[i]) tell("list", options_.list[i], "");
  for (size_t i = 0; i < scope_.size(); ++i)
    if (!scope_fits_[i]) tell("scope", options_.scope[i], i == 0 ? ", so the scope is empty" : ", so the scope continues to the end");
  return out;
}

void DumpFilter::note(const std::string& base) const {
  constexpr size_t kMost = 10'000;
  if ((!list_.empty() || !scope_.empty()) && seen_.size() < kMost) seen_.insert(base);
  for (size_t i = 0; i < scope_.size(); ++i)
    if (call_matches(base, scope_[i])) scope_fits_[i] = true;
}

// Returns a hint for a name that matches no call: "; did you mean 'head'?", or some existing names.
std::string DumpFilter::nearest(const std::string& pattern) const {
  std::string bare = pattern;
  std::erase(bare, '*');
  std::vector<std::string> names;
  for (const auto& base : seen_) {
    const auto first = base.find('.'), last = base.rfind('.');
    names.push_back(base);
    if (first == std::string::npos) continue;
    names.push_back(base.substr(first + 1));
    if (first == last) continue;
    const auto path = base.substr(first + 1, last - first - 1);  // the path of a layer, or an operator's name
    for (size_t begin = 0; begin != std::string::npos; begin = path.find('.', begin), begin += begin != std::string::npos)
      names.push_back(path.substr(begin)), names.push_back(path.substr(begin, path.find('.', begin) - begin));
    names.push_back(path.substr(0, path.rfind('.')));
    names.push_back(base.substr(last + 1));
  }
  if (const auto near = nearest_name(bare, names); !near.empty()) return "; did you mean '" + near + "'?";
  return seen_.empty() ? "" : "; available: " + detail::first_few({seen_.begin(), seen_.end()}, 5);
}

bool DumpFilter::enter(const std::string& base) {
  note(base);
  if (!scope_.empty() && call_matches(base, scope_.front())) scope_open_ = true;
  const bool listed = has(base);  // also called outside the scope, because unmatched() needs the names
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
