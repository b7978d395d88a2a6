/// A line on a terminal that shows how far a work is, and is replaced while it goes on.
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

/// Joins the parts into at most `width` columns (0: any): those with the highest rank are shortened first, then omitted.
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
  /// Whether the line is to be shown at this time in seconds, which is so five times a second; always for the last one.
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

/// Counts the pieces of a work, and shows the count and the remaining time.
class CountedProgress {
 public:
  /// `what` names the work: "images". `write`: empty for no line.
  CountedProgress(std::string what, std::function<void(const std::string&)> write, std::function<size_t()> columns);
  CountedProgress(const CountedProgress&) = delete;
  CountedProgress& operator=(const CountedProgress&) = delete;
  /// Removes the line.
  ~CountedProgress();

  /// `done` of `total` pieces are done at this time in seconds.
  void show(int64_t done, int64_t total, double now);

 private:
  std::string what_;
  bool on_;
  ProgressLine line_;
  int64_t first_done_ = -1;
  double first_time_ = 0;  // of first_done_: what precedes it, such as loading, is not a part of the estimate
};

}  // namespace npu_train::detail
