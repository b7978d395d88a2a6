// What plots share: a plot area of fixed height and any width. Lines and bars are stretched with it, text and strokes
// are not.
#pragma once

#include <string>
#include <vector>

#include "tools/report/axis.hpp"

namespace npu_train::detail {

/// Data is drawn in a box of kBox by kBox units, y downwards.
inline constexpr double kBox = 1000;

/// The height of a row of text above the plot area, in pixels.
inline constexpr int kRowAbove = 15;

/// A coordinate of that box with one decimal.
std::string in_box(double share);
/// The same place as a length of SVG: "12.5%".
std::string percent(double share);

struct Figure {
  std::string title, x_label, y_label;
  std::string summary;  ///< what a reader without eyes gets
  std::string legend;   ///< `<li>` elements
  std::string behind;   ///< SVG in percent, under the data
  std::string above;    ///< SVG in percent, text above the plot area
  std::string data;     ///< SVG in units of the box
  std::string below{};  ///< HTML under the plot area
  int rows_above = 0;   ///< rows of text in it
  bool wide = false;    ///< takes a row of the page alone
};

/// A vertical line at a share of the width, with text above it.
struct PlacedMark {
  double at = 0;
  std::string text;
};

/// Texts are put into rows where they do not cover each other at the width of a telephone; text without room is shown on hover only.
void add_marks(Figure& figure, std::vector<PlacedMark> marks);

/// The `<figure>`.
std::string figure_html(const Figure& figure, const Axis& x, const Axis& y);
/// The same without a plot area.
std::string figure_html(const Figure& figure);

/// A figure that says why nothing is drawn.
std::string empty_figure_html(const std::string& title, const std::string& legend);

}  // namespace npu_train::detail
