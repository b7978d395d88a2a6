#include "testing.hpp"

#include "npu_train/tools/report/plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::kInf;
using npu_train::testing::kNaN;

namespace {

struct Drawn {
  bool begins = false;  // whether the point begins a new piece of the curve
  double x = 0, y = 0;  // in units of the box, y downwards
};

// Returns the text between each `before` and the next `after`.
std::vector<std::string> all(const std::string& html, const std::string& before, const std::string& after = "\"") {
  std::vector<std::string> out;
  for (size_t at = html.find(before); at != std::string::npos; at = html.find(before, at + 1)) {
    const auto begin = at + before.size();
    out.push_back(html.substr(begin, html.find(after, begin) - begin));
  }
  return out;
}

size_t dots(const std::string& html) { return all(html, "class=\"dot\" d=\"").size(); }
size_t gaps(const std::string& html) { return all(html, "class=\"gap\" d=\"").size(); }
std::vector<std::string> lines(const std::string& html) { return all(html, "class=\"line\" d=\""); }
std::vector<std::string> bars(const std::string& html) { return all(html, "<rect class=\"bar\" ", " data-t"); }

// Returns every length in percent.
std::vector<double> percents(const std::string& html) {
  std::vector<double> out;
  for (size_t at = html.find("%\""); at != std::string::npos; at = html.find("%\"", at + 1)) {
    const auto begin = html.rfind('"', at) + 1;
    out.push_back(std::stod(html.substr(begin, at - begin)));
  }
  return out;
}

// Returns the points of a curve.
std::vector<Drawn> curve(const std::string& html, size_t series = 0) {
  const auto paths = lines(html);
  REQUIRE(series < paths.size());
  std::vector<Drawn> out;
  for (size_t at = 0; at < paths[series].size();) {
    Drawn point;
    int read = 0;
    REQUIRE(std::sscanf(paths[series].c_str() + at + 1, "%lf %lf%n", &point.x, &point.y, &read) == 2);
    point.begins = paths[series][at] == 'M';
    out.push_back(point);
    at += static_cast<size_t>(read) + 1;
  }
  return out;
}

std::vector<std::string> y_labels(const std::string& html) { return all(html, "text-anchor=\"end\">", "<"); }
std::vector<std::string> x_labels(const std::string& html) { return all(html, "dy=\"17\" text-anchor=\"middle\">", "<"); }

LinePlot of(std::vector<double> x, std::vector<double> y, bool log_y = false) {
  LinePlot plot;
  plot.log_y = log_y;
  plot.series.push_back({"s", std::move(x), std::move(y), {}});
  return plot;
}

}  // namespace

TEST_CASE("points are where the axes say") {
  const auto html = to_html(of({0, 5, 10}, {0, 100, 50}));
  const auto points = curve(html);
  REQUIRE(points.size() == 3);
  CHECK((points[0].begins && !points[1].begins && !points[2].begins));
  CHECK((points[0].x == 0 && points[1].x == 500 && points[2].x == 1000));
  CHECK((points[0].y == 1000 && points[1].y == 0 && points[2].y == 500));
  CHECK((y_labels(html) == std::vector<std::string>{"0", "20", "40", "60", "80", "100"}));
  CHECK((x_labels(html) == std::vector<std::string>{"0", "2", "4", "6", "8", "10"}));
  CHECK(has(html, "<title>5: 100</title>"));
}

TEST_CASE("log axis: decades, and zero on a line of its own") {
  const auto html = to_html(of({1, 2, 3, 4}, {1e-6, 0, 1e-3, 1}, true));
  const auto points = curve(html);
  CHECK(points[1].y == 1000);
  CHECK(points[3].y == 0);
  CHECK(points[0].y == doctest::Approx(910));
  CHECK(points[2].y == doctest::Approx(455));
  CHECK((y_labels(html) == std::vector<std::string>{"0", "1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1", "1"}));
  CHECK_FALSE(has(to_html(of({1, 2}, {1, 10}, true)), "tick floor"));
  CHECK((y_labels(to_html(of({1, 2}, {0.21, 0.34}, true))) == std::vector<std::string>{"0.2", "0.5"}));
  CHECK((y_labels(to_html(of({1, 2}, {0, 0}, true))) == std::vector<std::string>{"0"}));
  CHECK(curve(to_html(of({1, 2}, {0, 0}, true)))[0].y == 1000);
}

TEST_CASE("a point that cannot be drawn is a gap that is reported") {
  const auto html = to_html(of({1, 2, 3, 4, 5, 6, kNaN, 8}, {1, kNaN, 2, kInf, -kInf, 3, 4, 5}));
  const auto points = curve(html);
  REQUIRE(points.size() == 4);
  CHECK(std::all_of(points.begin(), points.end(), [](const Drawn& p) { return p.begins; }));
  CHECK(gaps(html) == 3);
  CHECK(has(html, "<li class=\"lost\">3 not finite</li>"));
  CHECK(has(html, "<li class=\"lost\">1 without a finite x</li>"));
  CHECK(has(html, "<title>s 4: inf</title>"));
  const auto log = to_html(of({1, 2, 3}, {1, -2, 4}, true));
  CHECK(has(log, "<li class=\"lost\">1 below 0</li>"));
  CHECK(has(log, "<title>s 2: -2</title>"));
  CHECK(curve(log).size() == 2);
}

TEST_CASE("no point, one point, no finite point") {
  CHECK(has(to_html(LinePlot{}), "nothing to draw"));
  CHECK(has(to_html(of({}, {})), "nothing to draw"));
  const auto lost = to_html(of({kNaN, kInf}, {1, 2}));
  CHECK(has(lost, "nothing to draw"));
  CHECK(has(lost, "2 without a finite x"));
  const auto one = to_html(of({3}, {5}));
  CHECK(curve(one)[0].x == 500);
  CHECK(curve(one)[0].y == 500);
  CHECK(dots(one) == 1);
  const auto diverged = to_html(of({1, 2}, {kNaN, kNaN}));
  CHECK(gaps(diverged) == 2);
  CHECK_FALSE(has(diverged, "class=\"line\""));
}

TEST_CASE("long series keep their extremes, ends and gaps") {
  constexpr size_t kCount = 10'000;
  std::vector<double> x(kCount), y(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    x[i] = static_cast<double>(i);
    y[i] = std::sin(static_cast<double>(i) * 0.7);
  }
  y[1'234] = 50;
  y[7'777] = -50;
  y[5'005] = kNaN;
  const auto html = to_html(of(x, y));
  const auto points = curve(html);
  CHECK(points.size() <= 2'002);
  CHECK(points.size() >= 1'900);
  for (const char* text : {"1,234: 50", "7,777: -50", "&#10;9,999: ", "\"0: 0&#10;", "s 5,005: nan"}) CHECK(has(html, text));
  CHECK(std::count_if(points.begin(), points.end(), [](const Drawn& p) { return p.begins; }) == 2);
  CHECK(std::is_sorted(points.begin(), points.end(), [](const Drawn& a, const Drawn& b) { return a.x < b.x; }));
  CHECK(all(html, "data-t=\"")[0].size() < 100'000);
  // Of every ten points, the largest and the smallest one are kept, so the curve fills the same band everywhere.
  for (size_t begin = 0; begin + 200 <= points.size(); begin += 200) {
    const auto [low, high] =
        std::minmax_element(points.begin() + static_cast<std::ptrdiff_t>(begin), points.begin() + static_cast<std::ptrdiff_t>(begin) + 200,
                            [](const Drawn& a, const Drawn& b) { return a.y < b.y; });
    CHECK(high->y - low->y > 1.9 / 120 * 1000);
  }

  std::vector<double> flickering(kCount);
  for (size_t i = 0; i < kCount; ++i) flickering[i] = i % 2 == 0 ? 1 : kNaN;
  const auto flicker = to_html(of(x, flickering));
  CHECK(flicker.size() < 600'000);
  CHECK(has(flicker, "5,000 not finite"));
}

TEST_CASE("labels are shown next to the values") {
  LinePlot plot;
  plot.x_label = "call";
  plot.series.push_back({"a<b", {0, 1}, {1, 2}, {"conv1 & \"co\"", ""}});
  const auto html = to_html(plot);
  CHECK(has(html, "<title>conv1 &amp; &quot;co&quot; \u00b7 call 0: 1</title>"));
  CHECK(has(html, "<title>call 1: 2</title>"));
  CHECK(has(html, "data-name=\"a&lt;b\""));
  std::vector<double> many(1'500, 1.0);
  plot.series = {{"m", many, many, std::vector<std::string>(1'500, "x")}};
  CHECK(dots(to_html(plot)) == 1'500);
}

TEST_CASE("marks: lines, texts that do not cover each other") {
  auto plot = of({0, 100}, {0, 1});
  plot.marks = {{150, "later"}, {50, "middle"}, {kNaN, "nowhere"}, {50.5, "second"}, {51, "third"}, {51.5, "no room"}};
  const auto html = to_html(plot);
  CHECK(all(html, "<line class=\"mark").size() == 5);
  for (const char* text : {">middle</text>", ">second</text>", ">third</text>", ">later</text>"}) CHECK(has(html, text));
  CHECK(all(html, "<text class=\"mark").size() == 4);
  CHECK(has(html, "<title>no room</title>"));
  CHECK_FALSE(has(html, "nowhere"));
  CHECK(curve(html)[1].x == doctest::Approx(666.7));
}

TEST_CASE("any finite doubles give an axis") {
  constexpr double kMax = std::numeric_limits<double>::max(), kTiny = 5e-324;
  const std::vector<std::vector<double>> ranges = {
      {-kMax, kMax},   {kMax, kMax},     {-kMax, -kMax / 2},          {0, kTiny},        {kTiny, kTiny}, {-kTiny, 2 * kTiny},
      {1e-300, 1e300}, {1e16, 1e16 + 2}, {1, std::nextafter(1.0, 2)}, {1e9, 1e9 + 1e-3}, {0, 0},         {-1e-310, 1e-310}};
  for (const auto& y : ranges)
    for (const bool log_y : {false, true})
      for (const bool as_x : {false, true}) {
        CAPTURE(y[0]);
        CAPTURE(y[1]);
        const auto html = to_html(as_x ? of(y, {1, 2}, log_y) : of({1, 2}, y, log_y));
        CHECK_FALSE(has(html, "nan%"));
        CHECK_FALSE(has(html, "inf%"));
        for (const double place : percents(html)) CHECK((place > -0.01 && place < 100.01));
        for (const auto& point : lines(html)) CHECK(point.find_first_not_of("ML0123456789. ") == std::string::npos);
        const auto labels = y_labels(html);
        CHECK(std::set<std::string>(labels.begin(), labels.end()).size() == labels.size());
        CHECK((!labels.empty() || log_y));
        CHECK(labels.size() <= 20);
      }
}

TEST_CASE("many series have colours, then dashes") {
  LinePlot plot;
  for (int i = 0; i < 20; ++i) plot.series.push_back({"s" + std::to_string(i), {0, 1}, {0.0 + i, 1.0 + i}, {}});
  const auto html = to_html(plot);
  CHECK(all(html, "<li class=\"s").size() == 20);
  CHECK(has(html, "<li class=\"s1 dash\">s9</li>"));
}

TEST_CASE("lengths that do not fit are refused") {
  const auto e = error_of([] { to_html(of({1, 2}, {1})); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "'s' has 2 x, 1 y"));
  auto plot = of({1, 2}, {1, 2});
  plot.series[0].labels = {"one"};
  CHECK(error_of([&] { to_html(plot); }).kind() == ErrorKind::Usage);
}

TEST_CASE("histogram") {
  const auto html = to_html({"Sizes", "size", {0, 1, 2, 4}, {10, 0, 1'000'000}, false});
  const auto drawn = bars(html);
  REQUIRE(drawn.size() == 2);
  CHECK(has(drawn[0], "x=\"0\" y=\"994\" width=\"250\" height=\"6\""));  // visible, though 100,000 times smaller
  CHECK(has(drawn[1], "x=\"500\" y=\"0\" width=\"500\" height=\"1000\""));
  CHECK(has(html, "2 to 4: 1,000,000"));
  CHECK(has(html, "histogram of 1,000,010 values from 0 to 4"));
  const auto log = bars(to_html({"", "", {0, 0.01, 1, 100}, {1, 1, 1}, true}));
  REQUIRE(log.size() == 3);
  CHECK(has(log[0], "x=\"0\" y=\"0\" width=\"90\""));
  CHECK(has(log[2], "x=\"545\" y=\"0\" width=\"455\""));
  CHECK(has(to_html(Histogram{}), "nothing to draw"));
  CHECK(has(to_html({"", "", {0, 1}, {0}, false}), "nothing to draw"));
  const std::vector<Histogram> wrong = {{"", "", {0, 1}, {1, 2}, false}, {"", "", {}, {1}, false},        {"", "", {0, kInf}, {1}, false},
                                        {"", "", {1, 1}, {1}, false},    {"", "", {0, kNaN}, {1}, false}, {"", "", {-1, 1}, {1}, true},
                                        {"", "", {0, 1}, {-1}, false}};
  for (const auto& h : wrong) CHECK(error_of([&] { to_html(h); }).kind() == ErrorKind::Usage);
}

namespace {

BarPlot layers(std::vector<double> values) {
  BarPlot plot{.title = "Error", .x_label = "layer", .y_label = "relative error"};
  for (size_t i = 0; i < values.size(); ++i) plot.bars.push_back({"layer" + std::to_string(i) + ".conv", values[i]});
  return plot;
}

std::vector<std::string> names(const std::string& html) { return all(html, "<span class=\"name\">", "</span>"); }
std::vector<std::string> widths(const std::string& html) { return all(html, "style=\"width:"); }

}  // namespace

TEST_CASE("few bars: a row for each, with name, length and value, the largest marked") {
  const auto html = to_html(layers({1, 4, 2, 0}));
  CHECK(names(html) == std::vector<std::string>{"layer0.conv", "layer1.conv", "layer2.conv", "layer3.conv"});
  CHECK(widths(html) == std::vector<std::string>{"25%", "100%", "50%", "0%"});
  CHECK(all(html, "<span class=\"value\">", "</span>") == std::vector<std::string>{"1", "4", "2", "0"});
  CHECK(all(html, "<li class=\"top\"><span class=\"name\">", "</span>") == std::vector<std::string>{"layer1.conv"});
  CHECK(has(html, "layer; relative error"));
  CHECK_FALSE(has(html, "<svg"));
  CHECK(has(to_html(BarPlot{.title = "None"}), "nothing to draw"));
}

TEST_CASE("many bars are next to each other, and the largest are numbered and named below") {
  std::vector<double> values(160, 1);
  values[70] = 10;
  values[20] = 7;
  const auto html = to_html(layers(values));
  const auto drawn = all(html, "<rect class=\"bar ", " data-t");
  REQUIRE(drawn.size() == 160);
  CHECK(has(drawn[70], "x=\"437.5\" y=\"0\" width=\"6.2\" height=\"1000\""));
  CHECK(has(drawn[20], "y=\"300\" width=\"6.2\" height=\"700\""));
  CHECK(names(html).size() == 8);
  CHECK(names(html)[0] == "<b>1</b> layer70.conv");
  CHECK(names(html)[1] == "<b>2</b> layer20.conv");
  CHECK(has(html, "The largest 8 of 160; relative error"));
  CHECK(has(html, "160 values, the largest is 10 of layer70.conv"));
  CHECK(has(html, "layer70.conv: 10<"));                                                  // text under the pointer
  CHECK(has(html, "x1=\"44.06%\" x2=\"44.06%\" y1=\"0\" y2=\"100%\"><title>1</title>"));  // number of the bar
}

TEST_CASE("bars of one group have one colour, and the legend names it") {
  auto plot = layers({1, 2, 3});
  plot.bars[0].group = plot.bars[2].group = "forward";
  plot.bars[1].group = "<b>";
  const auto html = to_html(plot);
  CHECK(has(html, "<li class=\"s0\">forward</li><li class=\"s1\">&lt;b&gt;</li>"));
  CHECK(all(html, "<i class=\"") == std::vector<std::string>{"s0", "s1", "s0"});
}

TEST_CASE("bars that have no length are not lost") {
  for (const size_t count : {3, 60}) {
    std::vector<double> values(count, 1e-6);
    values[1] = kNaN;
    const auto html = to_html(layers(values));
    CAPTURE(count);
    CHECK(has(html, "<li class=\"lost\">1 not finite or below 0</li>"));
    CHECK(has(html, "<i class=\"lost\" style=\"width:100%\">"));
    CHECK(has(all(html, "<li class=\"top\"><span class=\"name\">", "</span>").at(0), "layer1.conv"));
  }
  std::vector<double> values(3'000, 1);  // more than are drawn
  values[1234] = kInf;
  const auto html = to_html(layers(values));
  CHECK(all(html, "<rect class=\"bar ").size() == 1'000);
  CHECK(all(html, "<rect class=\"bar lost thin").size() == 1);
  CHECK(has(html, "layer1234.conv: inf"));
}

TEST_CASE("bars on a log axis: zero has no length, the smallest value has some") {
  auto plot = layers({0, 1e-6, 1e-3, 1});
  plot.log_y = true;
  const auto drawn = widths(to_html(plot));
  REQUIRE(drawn.size() == 4);
  CHECK(drawn[0] == "0%");
  CHECK(drawn[1] == "9%");
  CHECK(drawn[2] == "54.5%");
  CHECK(drawn[3] == "100%");
}
