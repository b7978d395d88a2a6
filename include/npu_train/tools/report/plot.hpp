/// Plots as HTML fragments with inline SVG, in the style of HtmlPage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu_train {

/// Curves over one x axis.
struct LinePlot {
  struct Series {
    std::string name;
    std::vector<double> x{}, y{};       ///< of equal length; the points are connected in this order
    std::vector<std::string> labels{};  ///< one per point, shown next to its values on hover; may be empty
    int64_t style = -1;                 ///< 0 to 7: a colour; 8 to 15: the same colours with dashed lines; -1: by position in `series`
  };
  /// A vertical line.
  struct Mark {
    double x = 0;
    std::string text;
  };

  std::string title{}, x_label{}, y_label{};
  bool log_y = false;
  std::vector<Series> series{};
  std::vector<Mark> marks{};
};

/// Counts of values between edges: counts[i] counts values in [edges[i], edges[i + 1]).
struct Histogram {
  std::string title{}, x_label{};
  std::vector<double> edges{};  ///< finite and ascending, one more than counts
  std::vector<int64_t> counts{};
  bool log_x = false;
};

/// Values by name, such as one for each layer in forward order.
struct BarPlot {
  struct Bar {
    std::string name;
    double value = 0;     ///< 0 or larger
    std::string group{};  ///< bars of a group share a colour, which the legend names
  };
  std::string title{}, x_label{}, y_label{};  ///< the labels are captions: the meaning of a bar, and the unit of its value
  bool log_y = false;
  std::vector<Bar> bars{};  ///< in drawing order
};

/// Draws a `<figure>` as wide as its container, with the same text size at every width.
///
/// Points that cannot be drawn are never silently lost. A point whose y is NaN or +-inf (on a log axis also y < 0) is a gap in its curve,
/// has a stroke at the upper edge, and is counted in the legend. Points without a finite x are also counted there. On a log axis, y = 0 is
/// drawn on a separate line, labelled 0, below the smallest positive value. A series with more than 2,000 points is divided into 1,000
/// runs; the smallest and the largest y of each run are drawn. Error(Usage) if x, y and labels differ in length.
std::string to_html(const LinePlot& plot);

/// Draws up to 24 bars as rows, each with its name and value. More than 24 bars are drawn side by side; the largest 8 of them are numbered,
/// and named below. If there are more than 1,000 bars, only the largest of each run of neighbours is drawn. A bar whose value is negative
/// or not finite has full length and the error colour, ranks as the largest, and is counted in the legend.
std::string to_html(const BarPlot& plot);

/// Draws a histogram. With `log_x`, the first edge may be 0. Error(Usage) if edges are not finite, not ascending or do not match the
/// counts.
std::string to_html(const Histogram& histogram);

}  // namespace npu_train
