#include "npu_train/tools/align/monitor_log.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/median.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr std::array kColumns = {"attempt", "step", "skipped", "what", "name",  "numel", "norm",
                                 "mean",    "std",  "min",     "max",  "zeros", "nans",  "infs"};
constexpr size_t kLongestLine = 10'000;

using Cells = std::array<std::string_view, kColumns.size()>;

// Splits a line into the cells of a row. A name that contains a comma or a quote is quoted; then `unquoted` owns the texts to which `cells`
// refer.
bool split_row(std::string_view line, std::vector<std::string>& unquoted, Cells& cells) {
  if (line.find('"') != std::string_view::npos) {
    try {
      unquoted = parse_csv(monitor_header() + std::string(line) + "\n", "monitor").rows.at(0);
    } catch (const Error&) {  // the error names neither the file nor its line
      return false;
    }
    std::copy(unquoted.begin(), unquoted.end(), cells.begin());
    return true;
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto end = line.find(',');
    if ((end == std::string_view::npos) != (i + 1 == cells.size())) return false;
    cells[i] = line.substr(0, end);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
  return true;
}

std::optional<MonitorRow> row_of(const std::string& line) {
  std::vector<std::string> unquoted;
  Cells cells;
  if (line.size() > kLongestLine || !split_row(line, unquoted, cells)) return std::nullopt;
  MonitorRow row{.what = std::string(cells[3]), .name = std::string(cells[4])};
  bool valid = cells[2] == "0" || cells[2] == "1";
  row.skipped = cells[2] == "1";
  for (const auto& [to, cell] : {std::pair(&row.attempt, 0), {&row.step, 1}, {&row.numel, 5}, {&row.nans, 12}, {&row.infs, 13}}) {
    const auto number = whole_number(cells[static_cast<size_t>(cell)]);
    valid &= number && *number >= 0;
    *to = number.value_or(0);
  }
  for (const auto& [to, cell] : {std::pair(&row.norm, 6), {&row.mean, 7}, {&row.std, 8}, {&row.min, 9}, {&row.max, 10}, {&row.zeros, 11}}) {
    const auto number = decimal_number(cells[static_cast<size_t>(cell)]);
    valid &= number.has_value();
    *to = number.value_or(0);
  }
  return valid ? std::optional(std::move(row)) : std::nullopt;
}

// Reads lines that end with \n or \r\n. If a line is longer than any row can be, only its beginning is returned.
class Lines {
 public:
  explicit Lines(std::streambuf& in) : in_(in) {}
  bool next(std::string& line) {
    constexpr auto kEnd = std::char_traits<char>::eof();
    line.clear();
    uint64_t bytes = 1;
    for (auto c = in_.sbumpc(); c != kEnd; c = in_.sbumpc(), ++bytes) {
      if (c == '\n') {
        if (line.ends_with('\r')) line.pop_back();
        before_ = std::exchange(after_, after_ + bytes);
        return true;
      }
      if (line.size() <= kLongestLine) line.push_back(static_cast<char>(c));
    }
    return false;
  }
  // Returns the position in the file at which the last read line begins or ends.
  uint64_t before() const { return before_; }
  uint64_t after() const { return after_; }

 private:
  std::streambuf& in_;
  uint64_t before_ = 0, after_ = 0;
};

// Calls on_row(row) for each row until it returns false. Returns the number of bytes before the row for which it did, or of all complete
// lines.
uint64_t read_rows(const fs::path& path, const std::function<bool(const MonitorRow&)>& on_row) {
  std::ifstream in(path, std::ios::binary);
  check(in.good(), ErrorKind::Data, "monitor", path.string(), ": cannot be read");
  Lines lines(*in.rdbuf());
  std::string line;
  const auto header = monitor_header().substr(0, monitor_header().size() - 1);
  const bool complete = lines.next(line);
  check(complete && line == header, ErrorKind::Data, "monitor", path.string(), ": not a monitor.csv: its first line is '",
        line.substr(0, 100), "'; it must be '", header, "'");
  for (int64_t number = 2; lines.next(line); ++number) {
    const auto row = row_of(line);
    check(row.has_value(), ErrorKind::Data, "monitor", path.string(), ", line ", number, ": cannot be read; it must have ", kColumns.size(),
          " cells: ", header);
    if (!on_row(*row)) return lines.before();
  }
  return lines.after();
}

}  // namespace

std::string monitor_header() { return csv_row({kColumns.begin(), kColumns.end()}); }

std::string to_csv(const MonitorRow& r) {
  return csv_row({std::to_string(r.attempt), std::to_string(r.step), r.skipped ? "1" : "0", r.what, r.name, std::to_string(r.numel),
                  shortest(r.norm), shortest(r.mean), shortest(r.std), shortest(r.min), shortest(r.max), shortest(r.zeros),
                  std::to_string(r.nans), std::to_string(r.infs)});
}

void read_monitor(const fs::path& path, const std::function<void(const MonitorRow&)>& on_row) {
  read_rows(path, [&](const MonitorRow& row) {
    on_row(row);
    return true;
  });
}

MonitorLog read_monitor_log(const fs::path& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  check(error || bytes <= kMostBytes, ErrorKind::Data, "monitor", path.string(), ": has ", bytes, " bytes; allowed: at most ", kMostBytes,
        "; hint: record less often with monitor.every");
  MonitorLog out;
  std::map<std::pair<std::string, std::string>, size_t> index;
  read_monitor(path, [&](MonitorRow row) {
    if (out.attempts.empty() || out.attempts.back() != row.attempt) {
      check(out.attempts.empty() || out.attempts.back() < row.attempt, ErrorKind::Data, "monitor", path.string(), ": window ", row.attempt,
            " comes after window ", out.attempts.empty() ? 0 : out.attempts.back());
      out.attempts.push_back(row.attempt);
    }
    const auto [found, is_new] = index.emplace(std::pair(row.what, row.name), out.series.size());
    if (is_new) out.series.push_back({.what = std::exchange(row.what, {}), .name = std::exchange(row.name, {})});
    row.what.clear(), row.name.clear();
    auto& rows = out.series[found->second].rows;
    check(rows.empty() || rows.back().attempt < row.attempt, ErrorKind::Data, "monitor", path.string(), ": two rows of window ",
          row.attempt, " for ", found->first.first, " of ", found->first.second);
    rows.push_back(std::move(row));
  });
  return out;
}

bool is_monitor(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string line;
  return Lines(*in.rdbuf()).next(line) && line + "\n" == monitor_header();
}

void cut_monitor(const fs::path& path, int64_t attempt, const std::function<void(const MonitorRow&)>& on_row) {
  const auto bytes = read_rows(path, [&](const MonitorRow& row) {
    if (row.attempt >= attempt) return false;
    on_row(row);
    return true;
  });
  std::error_code error;
  if (fs::file_size(path, error) != bytes) fs::resize_file(path, bytes, error);
  check(!error, ErrorKind::Checkpoint, "monitor", path.string(), ": cannot be cut at window ", attempt, ": ", error.message());
}

namespace {

constexpr size_t kRecords = 20, kLeastRecords = 5;
constexpr double kMostScore = 3.5, kMadOfNormal = 0.6745;

}  // namespace

std::optional<NormBand::Limits> NormBand::limits() const {
  if (logs_.size() < kLeastRecords) return std::nullopt;
  const double median = upper_median({logs_.begin(), logs_.end()});
  std::vector<double> deviations;
  for (const double log : logs_) deviations.push_back(std::abs(log - median));
  const double width = std::max(std::log(least_), kMostScore * upper_median(std::move(deviations)) / kMadOfNormal);
  return Limits{.median = std::exp(median), .low = std::exp(median - width), .high = std::exp(median + width)};
}

bool NormBand::contains(double norm) const {
  if (!std::isfinite(norm)) return false;
  const auto band = limits();
  return !band || (norm >= band->low && norm <= band->high);
}

void NormBand::add(double norm) {
  if (!std::isfinite(norm) || norm <= 0) return;
  logs_.push_back(std::log(norm));
  if (logs_.size() > kRecords) logs_.pop_front();
}

std::string to_text(const BandExit& exit) {
  const auto& row = exit.row;
  auto out =
      str_cat("at step ", row.step, " (window ", row.attempt, ") the gradient of ", row.name, " has the norm ", short_number(row.norm));
  if (!row.is_finite()) out += str_cat(", with ", row.nans, " NaN and ", row.infs, " infinite elements of ", row.numel);
  if (exit.band)
    out += str_cat(", outside of its band ", short_number(exit.band->low), " to ", short_number(exit.band->high), " around the median ",
                   short_number(exit.band->median));
  return out;
}

std::optional<BandExit> BandWatch::add(const MonitorRow& row) {
  if (row.what != "gradients" || row.skipped) return std::nullopt;
  auto& band = bands_.try_emplace(row.name, least_).first->second;
  const bool inside = band.contains(row.norm);
  const auto limits = band.limits();
  band.add(row.norm);
  return inside ? std::nullopt : std::optional(BandExit{row, limits});
}

std::vector<BandExit> band_exits(const fs::path& path, double least) {
  std::vector<BandExit> out;
  BandWatch watch(least);
  read_monitor(path, [&](const MonitorRow& row) {
    if (auto exit = watch.add(row)) out.push_back(std::move(*exit));
  });
  return out;
}

}  // namespace npu_train
