#include "tools/report/figure.hpp"

#include <algorithm>
#include <array>

#include "npu_train/tools/report/visible_text.hpp"
#include "tools/report/digits.hpp"

namespace npu_train::detail {
namespace {

// Approximate width of a digit in the axes' font, in pixels.
constexpr double kDigit = 6.6;
// The width of a plot area on a telephone, in pixels.
constexpr double kNarrowArea = 270;

std::string caption(const std::string& title) { return title.empty() ? "" : "<figcaption>" + escape_html(title) + "</figcaption>\n"; }

// Returns a label that is not wider than a telephone.
std::string label(const std::string& text) { return escape_html(shorten_middle(visible_text(text), 40)); }

// Returns the ticks as SVG, without labels that would touch at the width of a telephone.
std::string x_ticks(const Axis& axis) {
  std::string out;
  double free_from = -1;
  for (const auto& [value, text] : axis.ticks()) {
    const double at = axis.at(value);
    const double half = static_cast<double>(code_points(text)) * kDigit / 2 / kNarrowArea;
    out += "<line class=\"tick\" x1=\"" + percent(at) + "\" x2=\"" + percent(at) + "\" y1=\"0\" y2=\"100%\"/>";
    if (at - half < free_from) continue;
    out += "<text x=\"" + percent(at) + "\" y=\"100%\" dy=\"17\" text-anchor=\"middle\">" + text + "</text>\n";
    free_from = at + half + 8 / kNarrowArea;
  }
  return out;
}

std::string y_ticks(const Axis& axis) {
  std::string out;
  for (const auto& [value, text] : axis.ticks()) {
    const auto at = percent(1 - axis.at(value));
    const bool floor = axis.has_zero() && value == 0;
    out +=
        std::string("<line class=\"") + (floor ? "tick floor" : "tick") + "\" x1=\"0\" x2=\"100%\" y1=\"" + at + "\" y2=\"" + at + "\"/>";
    out += "<text x=\"-8\" y=\"" + at + "\" dy=\".35em\" text-anchor=\"end\">" + text + "</text>\n";
  }
  return out;
}

}  // namespace

std::string in_box(double share) { return fixed_plain(std::clamp(share, 0.0, 1.0) * kBox, 1); }

std::string percent(double share) { return fixed_plain(share * 100, 2) + "%"; }

void add_bar(Figure& figure, const std::string& classes, double x, double width, double height, const std::string& text) {
  const auto shown = escape_html(text);
  figure.data += "<rect class=\"" + classes + "\" x=\"" + in_box(x) + "\" y=\"" + in_box(1 - height) + "\" width=\"" + in_box(width) +
                 "\" height=\"" + in_box(height) + "\" data-t=\"" + shown + "\"><title>" + shown + "</title></rect>\n";
}

void add_marks(Figure& figure, std::vector<PlacedMark> marks) {
  constexpr double kLetter = 6.4 / kNarrowArea;
  std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  std::array<double, 3> free_from{};
  for (const auto& mark : marks) {
    const auto x = percent(mark.at);
    figure.behind += "<line class=\"mark\" x1=\"" + x + "\" x2=\"" + x + "\" y1=\"0\" y2=\"100%\"><title>" + escape_html(mark.text) +
                     "</title></line>\n";
    const auto text = shorten_middle(visible_text(mark.text), 28);
    const double width = static_cast<double>(code_points(text)) * kLetter;
    const bool at_begin = mark.at<width / 2, at_end = mark.at> 1 - width / 2;
    const double begin = at_begin ? 0 : at_end ? 1 - width : mark.at - width / 2;
    const auto row = std::find_if(free_from.begin(), free_from.end(), [&](double free) { return free <= begin; });
    if (row == free_from.end()) continue;
    *row = begin + width + 2 * kLetter;
    const auto rows = static_cast<int>(row - free_from.begin()) + 1;
    figure.rows_above = std::max(figure.rows_above, rows);
    const auto [place, anchor] = at_begin ? std::pair{std::string("0"), "start"}
                                 : at_end ? std::pair{std::string("100%"), "end"}
                                          : std::pair{x, "middle"};
    figure.above += "<text class=\"mark\" x=\"" + place + "\" y=\"0\" dy=\"-" + std::to_string(kRowAbove * rows - 8) + "\" text-anchor=\"" +
                    anchor + "\">" + escape_html(text) + "</text>\n";
  }
}

std::string figure_html(const Figure& f) {
  return std::string("<figure class=\"plot") + (f.wide ? " wide" : "") + "\">\n" + caption(f.title) +
         (f.legend.empty() ? "" : "<ul class=\"legend\">" + f.legend + "</ul>\n") + f.below + "</figure>\n";
}

std::string figure_html(const Figure& f, const Axis& x, const Axis& y) {
  size_t longest = 0;
  for (const auto& tick : y.ticks()) longest = std::max(longest, tick.text.size());
  const auto left = fixed_plain(std::max(22.0, static_cast<double>(longest) * kDigit + 10), 0);
  const double above = (f.y_label.empty() ? 6 : 26) + kRowAbove * f.rows_above;

  std::string out = "<div class=\"area\" style=\"padding:" + fixed_plain(above, 0) + "px 12px " + (f.x_label.empty() ? "24" : "42") +
                    "px " + left + "px\">\n<svg class=\"axes\" role=\"img\" aria-label=\"" + escape_html(f.summary) + "\">\n" + y_ticks(y) +
                    x_ticks(x) + f.behind;
  if (!f.y_label.empty())
    out += "<text class=\"label\" x=\"-" + left + "\" y=\"0\" dy=\"-" + fixed_plain(above - 12, 0) + "\">" + label(f.y_label) + "</text>\n";
  if (!f.x_label.empty())
    out += "<text class=\"label\" x=\"50%\" y=\"100%\" dy=\"36\" text-anchor=\"middle\">" + label(f.x_label) + "</text>\n";
  out += f.above + "<svg class=\"data\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">\n" + f.data + "</svg>\n</svg>\n</div>\n";
  auto whole = f;
  whole.below = out + f.below;
  return figure_html(whole);
}

std::string empty_figure_html(const std::string& title, const std::string& legend) {
  Figure figure;
  figure.title = title;
  figure.legend = legend;
  figure.below = "<p class=\"nothing\">nothing to draw</p>\n";
  return figure_html(figure);
}

}  // namespace npu_train::detail
