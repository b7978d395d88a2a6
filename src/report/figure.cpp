#include "report/figure.hpp"

#include <algorithm>

#include "npu_train/report/visible_text.hpp"
#include "report/digits.hpp"

namespace npu_train::detail {
namespace {

// About the width of a digit of the axes' font, in pixels.
constexpr double kDigit = 6.6;

std::string caption(const std::string& title) { return title.empty() ? "" : "<figcaption>" + escape_html(title) + "</figcaption>\n"; }

// As long as a telephone is wide.
std::string label(const std::string& text) { return escape_html(shorten_middle(visible_text(text), 40)); }

// Labels that would touch at the width of a telephone are left out.
std::string x_ticks(const Axis& axis) {
  constexpr double kNarrowArea = 270;
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

std::string figure_html(const Figure& f, const Axis& x, const Axis& y) {
  size_t longest = 0;
  for (const auto& tick : y.ticks()) longest = std::max(longest, tick.text.size());
  const auto left = fixed_plain(std::max(22.0, static_cast<double>(longest) * kDigit + 10), 0);
  const double above = (f.y_label.empty() ? 6 : 26) + kRowAbove * f.rows_above;

  std::string out = "<figure class=\"plot\">\n" + caption(f.title);
  if (!f.legend.empty()) out += "<ul class=\"legend\">" + f.legend + "</ul>\n";
  out += "<div class=\"area\" style=\"padding:" + fixed_plain(above, 0) + "px 12px " + (f.x_label.empty() ? "24" : "42") + "px " + left +
         "px\">\n<svg class=\"axes\" role=\"img\" aria-label=\"" + escape_html(f.summary) + "\">\n" + y_ticks(y) + x_ticks(x) + f.behind;
  if (!f.y_label.empty())
    out += "<text class=\"label\" x=\"-" + left + "\" y=\"0\" dy=\"-" + fixed_plain(above - 12, 0) + "\">" + label(f.y_label) + "</text>\n";
  if (!f.x_label.empty())
    out += "<text class=\"label\" x=\"50%\" y=\"100%\" dy=\"36\" text-anchor=\"middle\">" + label(f.x_label) + "</text>\n";
  return out + f.above + "<svg class=\"data\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">\n" + f.data +
         "</svg>\n</svg>\n</div>\n</figure>\n";
}

std::string empty_figure_html(const std::string& title, const std::string& legend) {
  return "<figure class=\"plot\">\n" + caption(title) + (legend.empty() ? "" : "<ul class=\"legend\">" + legend + "</ul>\n") +
         "<p class=\"nothing\">nothing to draw</p>\n</figure>\n";
}

}  // namespace npu_train::detail
