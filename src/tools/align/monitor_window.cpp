#include "tools/align/monitor_window.hpp"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <sstream>

namespace npu_train::detail {

size_t MonitorWindow::place_of(const Entry& entry) {
  return static_cast<size_t>(std::find(kMonitored.begin(), kMonitored.end(), entry.what) - kMonitored.begin());
}

MonitorWindow::Entry& MonitorWindow::entry_of(const std::string& what, const std::string& name) {
  const auto [found, is_new] = index_.emplace(std::pair(what, name), entries_.size());
  if (is_new) entries_.push_back({.what = what, .name = name});
  return entries_[found->second];
}

void MonitorWindow::add(const char* what, const std::string& name, const at::Tensor& t) {
  auto& entry = entry_of(what, name);
  if (t.is_cpu()) {
    entry.moments.join(moments_of(t));
  } else {
    rows_.push_back(moments_row(t));
    places_.emplace_back(static_cast<size_t>(&entry - entries_.data()), t.numel());
  }
}

void MonitorWindow::end() {
  if (!rows_.empty()) copy_ = HostCopy(at::stack(rows_));
  rows_.clear();
}

void MonitorWindow::resolve() {
  if (places_.empty()) return;
  const auto host = copy_.get();
  for (size_t i = 0; i < places_.size(); ++i)
    entries_[places_[i].first].moments.join(moments_of_row(host[static_cast<int64_t>(i)], places_[i].second));
  places_.clear();
}

void MonitorWindow::join_ranks(Ranks& ranks) {
  resolve();
  std::string own;
  for (const auto& e : entries_) own += e.what + "\n" + e.name + "\n" + to_text(e.moments) + "\n";
  const auto all = ranks.gather(own);
  entries_.clear();
  index_.clear();
  for (const auto& text : all) {
    std::istringstream in(text);
    std::string what, name, moments;
    while (std::getline(in, what) && std::getline(in, name) && std::getline(in, moments))
      entry_of(what, name).moments.join(moments_of_text(moments));
  }
  // a rank that lacks a parameter or a batch has fewer entries, so the joined entries may not be sorted by kind
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return place_of(a) < place_of(b); });
}

std::vector<MonitorRow> MonitorWindow::rows(int64_t step, bool skipped) const {
  std::vector<MonitorRow> out;
  for (const auto& e : entries_) {
    const auto& m = e.moments;
    out.push_back({.attempt = attempt_,
                   .step = step,
                   .skipped = skipped,
                   .what = e.what,
                   .name = e.name,
                   .numel = m.count,
                   .norm = m.norm(),
                   .mean = m.mean(),
                   .std = m.deviation(),
                   .min = m.lowest(),
                   .max = m.highest(),
                   .zeros = m.zero_share(),
                   .nans = m.nans,
                   .infs = m.infs});
  }
  return out;
}

}  // namespace npu_train::detail
