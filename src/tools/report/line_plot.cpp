#include <algorithm>
#include <cmath>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/plot.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "tools/report/digits.hpp"
#include "tools/report/figure.hpp"

namespace npu_train {
namespace {

using detail::Axis;
using detail::escape_html;
using detail::Extent;

constexpr size_t kMostPoints = 2000;
constexpr size_t kMostDots = 100;  // dots of a series without labels; more would hide the curve
constexpr size_t kColors = 8;

struct Lost {
  int64_t not_finite = 0, negative = 0, no_place = 0;
};

/// One point of a curve.
struct Point {
  size_t index = 0;
  bool after_gap = false;
};

/// The points of a series: those that can be drawn, and the gaps.
struct Curve {
  std::vector<Point> points;
  std::vector<size_t> gaps;  // indices of points with a position on the x axis
};

bool drawable(double y, bool log_y) { return std::isfinite(y) && !(log_y && y < 0); }

Curve split(const LinePlot::Series& series, bool log_y, Lost& lost) {
  Curve out;
  bool gap = true;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!std::isfinite(series.x[i])) {
      ++lost.no_place;
      gap = true;
    } else if (!drawable(series.y[i], log_y)) {
      ++(std::isfinite(series.y[i]) ? lost.negative : lost.not_finite);
      out.gaps.push_back(i);
      gap = true;
    } else {
      out.points.push_back({i, gap});
      gap = false;
    }
  }
  return out;
}

// Keeps the first and the last point and the extremes of each run of neighbours. A gap between two kept points is kept, too.
std::vector<Point> thinned(const std::vector<Point>& points, const std::vector<double>& y) {
  if (points.size() <= kMostPoints) return points;
  constexpr size_t kRuns = kMostPoints / 2;
  std::vector<Point> out;
  size_t next = 0;  // the first point that was not processed yet
  const auto keep = [&](size_t at) {
    if (at < next) return;
    bool gap = false;
    for (; next <= at; ++next) gap = gap || points[next].after_gap;
    out.push_back({points[at].index, gap});
  };
  keep(0);
  for (size_t run = 0; run < kRuns; ++run) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(run * points.size() / kRuns);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((run + 1) * points.size() / kRuns);
    const auto [low, high] = std::minmax_element(begin, end, [&](const Point& a, const Point& b) { return y[a.index] < y[b.index]; });
    keep(static_cast<size_t>(std::min(low, high) - points.begin()));
    keep(static_cast<size_t>(std::max(low, high) - points.begin()));
  }
  keep(points.size() - 1);
  return out;
}

std::string point_text(const LinePlot& plot, const LinePlot::Series& series, size_t i) {
  std::string out = series.labels.empty() || series.labels[i].empty() ? "" : series.labels[i] + " \u00b7 ";
  if (!plot.x_label.empty()) out += plot.x_label + " ";
  return escape_html(out + short_number(series.x[i], 7) + ": " + short_number(series.y[i], 6));
}

std::string color_class(size_t series) {
  std::string out = "s";
  out += std::to_string(series % kColors);
  if (series / kColors % 2 == 1) out += " dash";
  return out;
}

class Painter {
 public:
  explicit Painter(const LinePlot& plot) : plot_(plot) {
    for (const auto& series : plot_.series) {
      check(series.x.size() == series.y.size() && (series.labels.empty() || series.labels.size() == series.x.size()), ErrorKind::Usage,
            "LinePlot", "series '", detail::visible_text(series.name), "' has ", series.x.size(), " x, ", series.y.size(), " y and ",
            series.labels.size(), " labels; the numbers must be equal (or no labels)");
      curves_.push_back(split(series, plot_.log_y, lost_));
    }
  }

  std::string html() {
    for (size_t s = 0; s < curves_.size(); ++s) measure(plot_.series[s], curves_[s]);
    if (x_extent_.empty) return detail::empty_figure_html(plot_.title, legend());
    for (const auto& mark : plot_.marks) x_extent_.include(mark.x);
    x_ = Axis::linear(x_extent_, false);
    y_ = plot_.log_y ? Axis::logarithmic(y_extent_, zero_) : Axis::linear(y_extent_, true);

    detail::Figure figure;
    figure.title = plot_.title;
    figure.x_label = plot_.x_label;
    figure.y_label = plot_.y_label;
    figure.summary = summary();
    figure.legend = legend();
    add_marks(figure);
    for (size_t s = 0; s < curves_.size(); ++s) figure.data += curve(s);
    for (size_t s = 0; s < curves_.size(); ++s) figure.data += gaps(s);
    return detail::figure_html(figure, *x_, *y_);
  }

 private:
  std::string color_of(size_t series) const {
    const auto style = plot_.series[series].style;
    return color_class(style < 0 ? series : static_cast<size_t>(style));
  }

  void measure(const LinePlot::Series& series, const Curve& curve) {
    for (const auto i : curve.gaps) x_extent_.include(series.x[i]);
    for (const auto& point : curve.points) {
      const double y = series.y[point.index];
      x_extent_.include(series.x[point.index]);
      zero_ = zero_ || y == 0;
      if (!plot_.log_y || y > 0) y_extent_.include(y);
    }
  }

  std::string summary() const {
    return plot_.title + ": " + std::to_string(plot_.series.size()) + " series, x from " + short_number(x_extent_.low) + " to " +
           short_number(x_extent_.high) +
           (y_extent_.empty ? "" : ", y from " + short_number(y_extent_.low) + " to " + short_number(y_extent_.high));
  }

  std::string legend() const {
    std::string out;
    for (size_t s = 0; s < plot_.series.size(); ++s)
      if (!plot_.series[s].name.empty()) out += "<li class=\"" + color_of(s) + "\">" + escape_html(plot_.series[s].name) + "</li>";
    const auto tell = [&](int64_t count, const char* what) {
      if (count > 0) out += "<li class=\"lost\">" + with_commas(count) + " " + what + "</li>";
    };
    tell(lost_.not_finite, "not finite");
    tell(lost_.negative, "below 0");
    tell(lost_.no_place, "without a finite x");
    return out;
  }

  std::string place(const LinePlot::Series& series, size_t i) const {
    return detail::in_box(x_->at(series.x[i])) + " " + detail::in_box(1 - y_->at(series.y[i]));
  }

  std::string curve(size_t s) const {
    const auto& series = plot_.series[s];
    const auto points = thinned(curves_[s].points, series.y);
    if (points.empty()) return "";
    const bool all_dots = points.size() <= kMostDots || !series.labels.empty();
    std::string line, texts, dots;
    for (size_t k = 0; k < points.size(); ++k) {
      const auto at = place(series, points[k].index);
      const auto text = point_text(plot_, series, points[k].index);
      line += (points[k].after_gap ? "M" : "L") + at;
      texts += (k > 0 ? "&#10;" : "") + text;
      const bool alone = points[k].after_gap && (k + 1 == points.size() || points[k + 1].after_gap);
      if (all_dots || alone) dots += "<path class=\"dot\" d=\"M" + at + "h0\"><title>" + text + "</title></path>\n";
    }
    return "<g class=\"series " + color_of(s) + (points.size() > kMostDots ? " many" : "") + "\" data-name=\"" + escape_html(series.name) +
           "\" data-t=\"" + texts + "\">\n<path class=\"line\" d=\"" + line + "\"/>\n" + dots + "</g>\n";
  }

  // Draws one stroke for all gaps at the same place.
  std::string gaps(size_t s) const {
    const auto& series = plot_.series[s];
    std::string out, last;
    for (const auto i : curves_[s].gaps) {
      const auto at = detail::fixed_plain(x_->at(series.x[i]) * detail::kBox, 0);
      if (at == last) continue;
      last = at;
      out += "<path class=\"gap\" d=\"M" + at + " 0v50\"><title>" + escape_html(series.name + " ") + point_text(plot_, series, i) +
             "</title></path>\n";
    }
    return out;
  }

  void add_marks(detail::Figure& figure) const {
    std::vector<detail::PlacedMark> marks;
    for (const auto& mark : plot_.marks)
      if (std::isfinite(mark.x)) marks.push_back({x_->at(mark.x), mark.text});
    detail::add_marks(figure, std::move(marks));
  }

  const LinePlot& plot_;
  std::vector<Curve> curves_;
  Lost lost_;
  Extent x_extent_, y_extent_;
  bool zero_ = false;
  std::optional<Axis> x_, y_;
};

}  // namespace

std::string to_html(const LinePlot& plot) { return Painter(plot).html(); }

}  // namespace npu_train
