#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/plot.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/report/figure.hpp"

namespace npu_train {
namespace {

void check_histogram(const Histogram& h) {
  constexpr const char* where = "Histogram";
  check(h.counts.empty() || h.edges.size() == h.counts.size() + 1, ErrorKind::Usage, where, h.edges.size(), " edges for ", h.counts.size(),
        " counts; there must be one more edge than counts");
  for (size_t i = 0; i < h.edges.size(); ++i) {
    check(std::isfinite(h.edges[i]) && (i == 0 || h.edges[i - 1] < h.edges[i]), ErrorKind::Usage, where, "edge ", i, " is ", h.edges[i],
          "; edges must be finite and ascending");
  }
  check(!h.log_x || h.edges.empty() || h.edges[0] >= 0, ErrorKind::Usage, where,
        "the first edge is negative; a log axis must begin at 0 or above");
  for (const auto count : h.counts) check(count >= 0, ErrorKind::Usage, where, "a count is ", count, "; counts must not be negative");
}

detail::Axis x_axis(const Histogram& h) {
  detail::Extent extent;
  for (const double edge : h.edges)
    if (!h.log_x || edge > 0) extent.include(edge);
  return h.log_x ? detail::Axis::logarithmic(extent, h.edges[0] == 0) : detail::Axis::linear(extent, false);
}

}  // namespace

std::string to_html(const Histogram& h) {
  check_histogram(h);
  int64_t total = 0;
  detail::Extent extent;
  extent.include(0);
  for (const auto count : h.counts) {
    total += count;
    extent.include(static_cast<double>(count));
  }
  if (total == 0) return detail::empty_figure_html(h.title, "");
  const auto x = x_axis(h), y = detail::Axis::linear(extent, true);

  detail::Figure figure;
  figure.title = h.title;
  figure.x_label = h.x_label;
  figure.y_label = "count";
  figure.summary = h.title + ": histogram of " + with_commas(total) + " values from " + short_number(h.edges.front()) + " to " +
                   short_number(h.edges.back());
  for (size_t i = 0; i < h.counts.size(); ++i) {
    if (h.counts[i] == 0) continue;
    const double begin = x.at(h.edges[i]), end = x.at(h.edges[i + 1]);
    detail::add_bar(figure, "bar", begin, end - begin, std::max(y.at(static_cast<double>(h.counts[i])), detail::kThinnest),
                    short_number(h.edges[i]) + " to " + short_number(h.edges[i + 1]) + ": " + with_commas(h.counts[i]));
  }
  return detail::figure_html(figure, x, y);
}

}  // namespace npu_train
