#include "npu_train/core/progress_line.hpp"

#include <algorithm>
#include <utility>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kUsualWidth = 80;  // width of a terminal that does not report it
constexpr size_t kWideBar = 20, kNarrowBar = 10;
constexpr double kRefresh = 0.2;  // seconds

std::string gauge(size_t size, int64_t done, int64_t total) {
  const auto full = static_cast<size_t>(static_cast<int64_t>(size) * std::min(done, total) / std::max<int64_t>(total, 1));
  return std::string(1, '[').append(full, '#').append(size - full, '.').append(1, ']');
}

std::string joined(const std::vector<LinePart>& parts) {
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : "  ") + part.text;
  return out;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  return s >= 3600 ? printed("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60) : printed("%02lld:%02lld", s / 60, s % 60);
}

std::string fitted(std::vector<LinePart> parts, size_t width) {
  const auto too_wide = [&] { return width > 0 && code_points(joined(parts)) > width; };
  for (int rank = 9; rank >= 0 && too_wide(); --rank)
    for (auto& part : parts)
      if (part.rank == rank && !part.brief.empty() && too_wide()) part.text = part.brief;
  while (parts.size() > 1 && too_wide())
    parts.erase(std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.rank <= b.rank; }));
  const auto out = joined(parts);
  return too_wide() ? visible_start(out, width).substr(0, width) : out;
}

ProgressLine::ProgressLine(std::function<void(const std::string&)> write, std::function<size_t()> columns)
    : write_(std::move(write)), columns_(std::move(columns)) {}

size_t ProgressLine::width() const {
  const auto columns = columns_ ? columns_() : 0;
  return columns > 0 ? columns : kUsualWidth;
}

bool ProgressLine::due(double now, bool last) {
  if (now - shown_at_ < kRefresh && shown_at_ >= 0 && !last) return false;
  shown_at_ = now;
  return true;
}

// One column stays free: some terminals move to the next line as soon as the last column is written.
void ProgressLine::show(std::vector<LinePart> parts, int64_t done, std::optional<int64_t> total) {
  if (total) parts.insert(parts.begin(), {2, gauge(kWideBar, done, *total), gauge(kNarrowBar, done, *total)});
  write_("\r\033[K" + fitted(std::move(parts), std::max<size_t>(width(), 2) - 1));
  open_ = true;
}

void ProgressLine::clear() {
  if (open_) write_("\r\033[K");
  open_ = false;
}

CountedProgress::CountedProgress(std::string what, std::function<void(const std::string&)> write, std::function<size_t()> columns)
    : what_(std::move(what)), on_(static_cast<bool>(write)), line_(std::move(write), std::move(columns)) {}

CountedProgress::~CountedProgress() { line_.clear(); }

void CountedProgress::show(int64_t done, int64_t total, double now) {
  if (!on_) return;
  if (first_done_ < 0) first_done_ = done, first_time_ = now;
  if (!line_.due(now, done >= total)) return;
  std::vector<LinePart> parts{{0, what_ + " " + with_commas(done) + "/" + with_commas(total)}};
  if (done > first_done_)
    parts.push_back(
        {1, "eta " + clock_text((now - first_time_) / static_cast<double>(done - first_done_) * static_cast<double>(total - done))});
  line_.show(std::move(parts), done, total);
}

}  // namespace npu_train::detail
