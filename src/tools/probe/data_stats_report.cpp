#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/probe/data_stats.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

using Counts = std::map<int64_t, int64_t>;  // how often each number occurs

constexpr size_t kMostSizes = 50;

int64_t total_of(const Counts& counts) {
  int64_t out = 0;
  for (const auto& [value, count] : counts) out += count;
  return out;
}

/// Returns the smallest number that is at least as large as the given share of all numbers.
int64_t quantile(const Counts& counts, double share) {
  const double wanted = share * static_cast<double>(total_of(counts));
  int64_t before = 0;
  for (const auto& [value, count] : counts)
    if (static_cast<double>(before += count) >= wanted) return value;
  return counts.empty() ? 0 : counts.rbegin()->first;
}

std::vector<ClassCount> largest_first(std::vector<ClassCount> classes) {
  std::stable_sort(classes.begin(), classes.end(), [](const auto& a, const auto& b) { return a.train > b.train; });
  return classes;
}

/// Reports how uneven the classes are. `labelled`: samples can be drawn and weighted by class.
void add_imbalance(Report& out, const std::vector<ClassCount>& sorted, bool labelled) {
  std::vector<std::string> empty;
  for (const auto& c : sorted)
    if (c.train == 0) empty.push_back(c.name);
  const auto &largest = sorted.front(), &smallest = sorted.back();
  const auto ratio = empty.empty() ? std::optional(static_cast<double>(largest.train) / static_cast<double>(smallest.train)) : std::nullopt;
  out.data({{"imbalance", ratio ? Json(*ratio) : Json()}});
  if (!ratio)
    out.say(with_commas(static_cast<int64_t>(empty.size())) + (empty.size() == 1 ? " class has" : " classes have") +
                " no training sample: " + detail::first_few(empty, 8),
            Tone::Warn);
  else if (*ratio == 1)
    out.say("all classes have the same number of training samples");
  else
    out.say("the largest class, " + largest.name + ", has " + short_number(*ratio, 3) +
            " times as many training samples as the smallest, " + smallest.name);
  if (labelled && ratio && *ratio >= 2)
    out.remarks("hint",
                {"data.sampler=balanced draws all classes equally often; task.balanced_classes=true of a classifier gives rare ones more "
                 "weight"});
}

void add_class_counts(Report& out, const DataStatistics& s) {
  const auto sorted = largest_first(s.classes);
  add_imbalance(out, sorted, s.labelled);
  int64_t all = 0;
  for (const auto& c : sorted) all += c.train;
  ReportTable table{.title = "Classes", .text_rows = 20, .all = sorted.size(), .order = "largest first"};
  BarPlot plot{.title = "Training samples by class", .x_label = "class, largest first", .y_label = "samples"};
  for (const auto& c : sorted) {
    const double share = all > 0 ? static_cast<double>(c.train) / static_cast<double>(all) : 0;
    table.add({both("class", c.name), both("train", c.train), both("val", c.val), both("share", share_value(share))});
    plot.bars.push_back({c.name, static_cast<double>(c.train)});
  }
  out.table("classes", std::move(table));
  out.plot(std::move(plot));
}

void add_sizes(Report& out, const DataStatistics& s) {
  Counts heights, widths;
  std::vector<std::pair<int64_t, std::pair<int64_t, int64_t>>> frequent;
  for (const auto& [size, count] : s.sizes) {
    heights[size.first] += count;
    widths[size.second] += count;
    frequent.emplace_back(count, size);
  }
  std::stable_sort(frequent.begin(), frequent.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto extent = [](const Counts& counts) {
    return Json::object({{"min", counts.begin()->first}, {"median", quantile(counts, 0.5)}, {"max", counts.rbegin()->first}});
  };
  const auto shown_extent = [](const Counts& counts) {
    return counts.size() == 1 ? with_commas(counts.begin()->first)
                              : with_commas(counts.begin()->first) + " to " + with_commas(counts.rbegin()->first) + ", median " +
                                    with_commas(quantile(counts, 0.5));
  };
  out.facts({{"height", "height", {extent(heights), shown_extent(heights)}},
             {"width", "width", {extent(widths), shown_extent(widths)}},
             both("different_sizes", "different sizes", static_cast<int64_t>(s.sizes.size()))});
  ReportTable sizes{.title = frequent.size() > kMostSizes ? "The " + std::to_string(kMostSizes) + " most frequent sizes" : "Sizes",
                    .text_rows = 10,
                    .all = frequent.size(),
                    .order = "most frequent first"};
  for (size_t i = 0; i < std::min(frequent.size(), kMostSizes); ++i)
    sizes.add({both("height", frequent[i].second.first), both("width", frequent[i].second.second), both("images", frequent[i].first)});
  out.table("sizes", std::move(sizes));
  ReportTable modes{.title = "Modes"};
  for (const auto& [mode, count] : s.modes) modes.add({both("mode", mode), both("images", count)});
  out.table("modes", std::move(modes));
}

std::string list_of(const std::vector<double>& numbers) {
  std::vector<std::string> out;
  for (const double number : numbers) out.push_back(short_number(number, 6));
  return "[" + join(out) + "]";
}

/// Adds the mean and deviation of the pixels as a `normalize` transform, which refuses a deviation of 0.
void add_normalize(Report& out, const std::vector<double>& mean, const std::vector<double>& std) {
  if (std::find(std.begin(), std.end(), 0) == std.end())
    out.say("as a transform: {name: normalize, mean: " + list_of(mean) + ", std: " + list_of(std) + "}");
  else
    out.say("all pixels of a channel have the same value, so there is no deviation for the transform normalize", Tone::Warn);
  out.data({{"normalize", Json::object({{"mean", detail::json_list(mean)}, {"std", detail::json_list(std)}})}});
}

void add_channels(Report& out, const DataStatistics& s) {
  static constexpr const char* kNames[] = {"red", "green", "blue", "fourth"};
  std::vector<double> mean, std;
  ReportTable table{.title = s.transformed ? "Pixels of the training images after data.val_transforms" : "Pixels of the training images"};
  LinePlot plot{.title = "Values", .x_label = "value, 0 to 255", .y_label = "share of pixels"};
  for (size_t c = 0; c < s.channels.size(); ++c) {
    const auto& channel = s.channels[c];
    const std::string name = s.channels.size() == 1 ? "gray" : kNames[std::min(c, std::size(kNames) - 1)];
    mean.push_back(channel.mean());
    std.push_back(channel.std());
    const auto used = [](int64_t count) { return count > 0; };
    const auto lowest = std::find_if(channel.counts.begin(), channel.counts.end(), used) - channel.counts.begin();
    const auto highest = channel.counts.rend() - std::find_if(channel.counts.rbegin(), channel.counts.rend(), used) - 1;
    table.add({both("channel", name), both("mean", number_value(mean.back(), 6)), both("std", number_value(std.back(), 6)),
               both("min", static_cast<int64_t>(lowest)), both("max", static_cast<int64_t>(highest)), both("pixels", channel.pixels()),
               data("sum", channel.sum()), data("sum_of_squares", channel.sum_of_squares())});
    auto& series = plot.series.emplace_back(LinePlot::Series{.name = name});
    for (size_t v = 0; v < channel.counts.size(); ++v) {
      series.x.push_back(static_cast<double>(v));
      series.y.push_back(static_cast<double>(channel.counts[v]) / static_cast<double>(channel.pixels()));
    }
  }
  // Reorders the channels to blue, red, green, because the first colours of a plot are blue, orange and green.
  if (plot.series.size() == 3) std::rotate(plot.series.begin(), plot.series.begin() + 2, plot.series.end());
  add_normalize(out, mean, std);
  out.data({{"pixels_of", s.transformed ? "data.val_transforms" : "files"}});
  out.table("channels", std::move(table));
  out.plot(std::move(plot));
}

void add_lengths(Report& out, const DataStatistics& s) {
  const auto& lengths = s.lengths;
  int64_t tokens = 0;
  for (const auto& [length, count] : lengths) tokens += length * count;
  const auto texts = total_of(lengths);
  const double mean = static_cast<double>(tokens) / static_cast<double>(texts);
  Report part("");
  part.facts({both("texts", texts), both("tokens", tokens), both("min", "shortest", lengths.begin()->first),
              both("mean", number_value(mean, 4)), both("median", quantile(lengths, 0.5)),
              both("p95", "95 % up to", quantile(lengths, 0.95)), both("p99", "99 % up to", quantile(lengths, 0.99)),
              both("max", "longest", lengths.rbegin()->first)});
  if (s.context > 0) part.facts({both("context", "data.context", s.context)});
  constexpr int64_t kMostBins = 40;
  const int64_t first = lengths.begin()->first, last = lengths.rbegin()->first, width = (last - first) / kMostBins + 1;
  Histogram plot{.title = "Lengths", .x_label = "tokens of a text"};
  for (int64_t edge = first; edge <= last + width; edge += width) plot.edges.push_back(static_cast<double>(edge));
  plot.counts.resize(plot.edges.size() - 1);
  for (const auto& [length, count] : lengths) plot.counts[static_cast<size_t>((length - first) / width)] += count;
  part.plot(std::move(plot));
  out.add("lengths", std::move(part));
}

}  // namespace

Report report_of(const DataStatistics& s) {
  Report out("Statistics of the data", Json::object({{"summary", s.summary}, {"train", s.train}, {"val", s.val}}));
  const auto bad = static_cast<int64_t>(s.bad.size());
  out.verdict("data: " + s.summary + (bad == 0 ? "" : "; " + with_commas(bad) + " cannot be read"), bad == 0 ? Tone::Plain : Tone::Warn);
  if (!s.classes.empty()) add_class_counts(out, s);
  if (!s.sizes.empty()) add_sizes(out, s);
  if (!s.channels.empty()) add_channels(out, s);
  if (!s.lengths.empty()) add_lengths(out, s);
  out.table("bad", table_of_bad_samples(s.bad));
  return out;
}

}  // namespace npu_train
