/// A line on a terminal that shows the progress of an operation and is updated in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace npu_train::detail {

/// A value of the line. `rank` 0 is the most important; `brief` replaces `text` if there is not enough room.
struct LinePart {
  int rank = 0;
  std::string text, brief{};
};

/// Joins the parts into at most `width` columns (0: no limit): those with the highest rank are shortened first, then omitted.
std::string fitted(std::vector<LinePart> parts, size_t width);

/// Formats seconds as "07:05" or "1:07:05".
std::string clock_text(double seconds);

/// Not thread-safe.
class ProgressLine {
 public:
  /// `write` receives the line, which begins with a carriage return and replaces the previous one. `columns` returns the width of the
  /// terminal (0: unknown) and is called for each line, so that a resized terminal is detected.
  ProgressLine(std::function<void(const std::string&)> write, std::function<size_t()> columns);

  /// Returns the columns of the terminal.
  size_t width() const;
  /// Returns whether the line is due at time `now` (in seconds): at most five times a second, and always if `last`.
  bool due(double now, bool last);
  /// Shows the parts, and a gauge if the total is known.
  void show(std::vector<LinePart> parts, int64_t done, std::optional<int64_t> total);
  /// Removes the line.
  void clear();

 private:
  std::function<void(const std::string&)> write_;
  std::function<size_t()> columns_;
  double shown_at_ = -1;
  bool open_ = false;
};

/// Shows how many items of an operation are done, and the remaining time.
class CountedProgress {
 public:
  /// `what` names the items: "images". An empty `write` disables the line.
  CountedProgress(std::string what, std::function<void(const std::string&)> write, std::function<size_t()> columns);
  CountedProgress(const CountedProgress&) = delete;
  CountedProgress& operator=(const CountedProgress&) = delete;
  /// Removes the line.
  ~CountedProgress();

  /// Shows that `done` of `total` items are done at time `now` (in seconds).
  void show(int64_t done, int64_t total, double now);

 private:
  std::string what_;
  bool on_;
  ProgressLine line_;
  int64_t first_done_ = -1;
  double first_time_ = 0;  // time of first_done_; earlier work, such as loading, is not part of the estimate
};

}  // namespace npu_train::detail
