// Common parts of plots: a plot area of fixed height and any width. Lines and bars are stretched with it; text and strokes are not.
#pragma once

#include <string>
#include <vector>

#include "tools/report/axis.hpp"

namespace npu_train::detail {

/// Size of the box in which data is drawn, with y downwards.
inline constexpr double kBox = 1000;

/// The height of a row of text above the plot area, in pixels.
inline constexpr int kRowAbove = 15;

/// Converts a share of the box to a coordinate of the box, with one decimal.
std::string in_box(double share);
/// Converts a share to an SVG length: "12.5%".
std::string percent(double share);

struct Figure {
  std::string title, x_label, y_label;
  std::string summary;  ///< text for screen readers
  std::string legend;   ///< `<li>` elements
  std::string behind;   ///< SVG with coordinates in percent, drawn under the data
  std::string above;    ///< SVG with coordinates in percent: the text above the plot area
  std::string data;     ///< SVG with coordinates of the box
  std::string below{};  ///< HTML under the plot area
  int rows_above = 0;   ///< rows of text in `above`
  bool wide = false;    ///< occupies a complete row of the page
};

/// A vertical line at a share of the width, with text above it.
struct PlacedMark {
  double at = 0;
  std::string text;
};

/// The minimum height of a bar whose value is not 0, as a share of the box, so that every value is visible.
inline constexpr double kThinnest = 0.006;

/// Adds a bar from the bottom of the box, with its left edge at `x` and a text on hover. `x`, `width` and `height` are shares of the box.
void add_bar(Figure& figure, const std::string& classes, double x, double width, double height, const std::string& text);

/// Adds the marks. Their texts are arranged in rows, so that they do not overlap at the width of a telephone. A text for which there is no
/// room appears only on hover.
void add_marks(Figure& figure, std::vector<PlacedMark> marks);

/// Returns the `<figure>` with a plot area.
std::string figure_html(const Figure& figure, const Axis& x, const Axis& y);
/// Returns the `<figure>` without a plot area.
std::string figure_html(const Figure& figure);

/// Returns a figure that states why no data is drawn.
std::string empty_figure_html(const std::string& title, const std::string& legend);

}  // namespace npu_train::detail
