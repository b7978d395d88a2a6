#include <algorithm>
#include <cmath>
#include <numeric>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/plot.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "tools/report/figure.hpp"

namespace npu_train {
namespace {

using detail::Axis;
using detail::escape_html;
using Bar = BarPlot::Bar;

constexpr size_t kNamed = 24;       // up to this many bars are rows with names; more bars are drawn side by side
constexpr size_t kLargestBar = 8;   // if bars are drawn side by side, this number of the largest is named below them
constexpr size_t kMostBars = 1000;  // limit of bars drawn side by side; above it, only the largest of each run of neighbours is drawn
constexpr size_t kThick = 100;      // up to this many bars have space between them
constexpr size_t kBarColors = 8;

bool drawable(const Bar& bar) { return std::isfinite(bar.value) && bar.value >= 0; }

// Returns the sort key of a bar. Values that are not finite come first, because readers must see them.
double rank_of(const Bar& bar) { return drawable(bar) ? bar.value : HUGE_VAL; }

class BarPainter {
 public:
  explicit BarPainter(const BarPlot& plot) : plot_(plot) {
    detail::Extent extent;
    if (!plot.log_y) extent.include(0);
    for (const auto& bar : plot.bars) {
      if (drawable(bar) && !(plot.log_y && bar.value == 0)) extent.include(bar.value);
      if (!bar.group.empty() && std::find(groups_.begin(), groups_.end(), bar.group) == groups_.end()) groups_.push_back(bar.group);
    }
    axis_ = plot.log_y ? Axis::logarithmic(extent, true) : Axis::linear(extent, true);
    order_.resize(plot.bars.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  std::string html() const {
    if (plot_.bars.empty()) return detail::empty_figure_html(plot_.title, "");
    detail::Figure figure;
    figure.title = plot_.title;
    figure.legend = legend();
    figure.wide = true;
    if (plot_.bars.size() <= kNamed) {
      figure.below = caption(plot_.x_label, plot_.y_label) + rows(order_, false);
      return detail::figure_html(figure);
    }
    const auto largest = largest_bars();
    figure.x_label = plot_.x_label;
    figure.y_label = plot_.y_label;
    figure.summary = plot_.title + ": " + std::to_string(plot_.bars.size()) + " values" +
                     (largest.empty() ? "" : ", the largest is " + value_text(largest[0]) + " of " + plot_.bars[largest[0]].name);
    std::vector<detail::PlacedMark> marks;
    for (size_t i = 0; i < largest.size(); ++i) marks.push_back({middle(largest[i]), std::to_string(i + 1)});
    detail::add_marks(figure, std::move(marks));
    add_bars(figure);
    if (!largest.empty()) {
      figure.below = caption("The largest " + std::to_string(largest.size()) + " of " + std::to_string(plot_.bars.size()), plot_.y_label);
      figure.below += rows(largest, true);
    }
    return detail::figure_html(figure, Axis{}, axis_);
  }

 private:
  double middle(size_t i) const { return (static_cast<double>(i) + 0.5) / static_cast<double>(plot_.bars.size()); }
  double length(size_t i) const { return drawable(plot_.bars[i]) ? axis_.at(plot_.bars[i].value) : 1; }
  std::string value_text(size_t i) const { return short_number(plot_.bars[i].value, 3); }

  std::string classes(size_t i) const {
    const auto& bar = plot_.bars[i];
    if (!drawable(bar)) return "lost";
    const auto group = static_cast<size_t>(std::find(groups_.begin(), groups_.end(), bar.group) - groups_.begin());
    std::string out = "s";
    return out += std::to_string(groups_.empty() ? 0 : group % kBarColors);
  }

  std::string legend() const {
    std::string out;
    for (size_t g = 0; g < groups_.size(); ++g) {
      out += "<li class=\"s";
      out += std::to_string(g % kBarColors) + "\">" + escape_html(groups_[g]) + "</li>";
    }
    const auto lost = std::count_if(plot_.bars.begin(), plot_.bars.end(), [](const Bar& bar) { return !drawable(bar); });
    if (lost > 0) out += "<li class=\"lost\">" + with_commas(lost) + " not finite or below 0</li>";
    return out;
  }

  static std::string caption(const std::string& what, const std::string& unit) {
    const auto text = what + (what.empty() || unit.empty() ? "" : "; ") + unit;
    return text.empty() ? "" : "<p class=\"unit\">" + escape_html(text) + "</p>\n";
  }

  std::vector<size_t> largest_bars() const {
    auto out = order_;
    std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return rank_of(plot_.bars[a]) > rank_of(plot_.bars[b]); });
    out.resize(std::min(out.size(), kLargestBar));
    std::erase_if(out, [&](size_t i) { return rank_of(plot_.bars[i]) == 0; });
    return out;
  }

  void add_bars(detail::Figure& figure) const {
    const auto count = plot_.bars.size(), runs = std::min(count, kMostBars);
    const double width = 1.0 / static_cast<double>(runs);
    for (size_t run = 0; run < runs; ++run) {
      const auto of_run = [&](size_t k) { return order_.begin() + static_cast<std::ptrdiff_t>(k * count / runs); };
      const auto i = *std::max_element(of_run(run), of_run(run + 1),
                                       [&](size_t a, size_t b) { return rank_of(plot_.bars[a]) < rank_of(plot_.bars[b]); });
      const auto& bar = plot_.bars[i];
      detail::add_bar(figure, "bar " + classes(i) + (runs > kThick ? " thin" : ""), static_cast<double>(run) * width, width,
                      bar.value == 0 ? 0 : std::max(length(i), detail::kThinnest),
                      bar.name + (bar.group.empty() ? "" : " \u00b7 " + bar.group) + ": " + short_number(bar.value, 6));
    }
  }

  std::string rows(const std::vector<size_t>& shown, bool numbered) const {
    std::string out = numbered ? "<ol class=\"rows numbered\">\n" : "<ol class=\"rows\">\n";
    const auto largest =
        std::max_element(shown.begin(), shown.end(), [&](size_t a, size_t b) { return rank_of(plot_.bars[a]) < rank_of(plot_.bars[b]); });
    for (size_t k = 0; k < shown.size(); ++k) {
      const auto i = shown[k];
      const bool top = i == *largest && rank_of(plot_.bars[i]) > 0;
      out += std::string("<li") + (top ? " class=\"top\"" : "") + "><span class=\"name\">" +
             (numbered ? "<b>" + std::to_string(k + 1) + "</b> " : "") + escape_html(plot_.bars[i].name) +
             "</span><span class=\"track\"><i class=\"" + classes(i) + "\" style=\"width:" + detail::percent(length(i)) +
             "\"></i></span><span class=\"value\">" + value_text(i) + "</span></li>\n";
    }
    return out + "</ol>\n";
  }

  const BarPlot& plot_;
  std::vector<size_t> order_;
  std::vector<std::string> groups_;
  Axis axis_;
};

}  // namespace

std::string to_html(const BarPlot& plot) { return BarPainter(plot).html(); }

}  // namespace npu_train
