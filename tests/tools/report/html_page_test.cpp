#include "testing.hpp"

#include <cmath>

#include "npu_train/core/version.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/text_table.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

const std::string kHostile = "</script></style></title></td><img src=x onerror=alert(1)>\"'&\x1b[31m\xff\u202e";

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

std::string layer_name(int i) {
  return "layer" + std::to_string(i / 6 + 1) + "." + std::to_string(i / 2 % 3) + ".conv" + std::to_string(i % 2 + 1);
}

LinePlot errors_by_layer() {
  LinePlot plot{"Largest error by layer", "call", "relative error", true};
  LinePlot::Series forward{.name = "forward"}, backward{.name = "backward"};
  for (int i = 0; i < 48; ++i) {
    const double error = 2e-7 * std::exp(0.12 * i) * (1.4 + std::sin(i * 1.7));
    for (auto* series : {&forward, &backward}) {
      series->x.push_back(i);
      series->labels.push_back(layer_name(i));
      series->y.push_back(series == &forward ? (i % 11 == 0 ? 0 : error) : error * 3.5);
    }
  }
  backward.y[30] = kNaN;
  backward.labels[31] = kHostile;
  plot.series = {forward, backward};
  plot.marks = {{12, "layer3"}, {24, "layer5"}, {30, "first beyond the tolerance"}};
  return plot;
}

LinePlot long_curves() {
  LinePlot plot{"Loss", "step", "cross entropy"};
  for (const char* name : {"here", "reference"}) {
    LinePlot::Series series{.name = name};
    for (int i = 0; i < 10'000; ++i) {
      series.x.push_back(i);
      series.y.push_back(2.2 * std::exp(-i / 2500.0) + 0.15 + 0.06 * std::sin(i * 12.9898) * std::sin(i * 0.011 + series.name.size()));
    }
    plot.series.push_back(series);
  }
  plot.series[0].y[7'000] = kInf;
  return plot;
}

LinePlot learning_rate() {
  LinePlot plot{"Learning rate", "step", "", false, {{.name = "here"}}};
  for (int i = 0; i <= 10'000; i += 100) {
    plot.series[0].x.push_back(i);
    plot.series[0].y.push_back(i < 1000 ? i * 3e-7 : 1.5e-4 * (1 + std::cos((i - 1000) / 9000.0 * 3.14159265)));
  }
  return plot;
}

BarPlot activations(int count) {
  BarPlot plot{"Activations of " + std::to_string(count) + " layers", "layer, in forward order", "MiB", false, {}};
  for (int i = 0; i < count; ++i)
    plot.bars.push_back({"encoder.layers.encoder_" + layer_name(i), 40 * std::exp(-0.01 * i) * (1.2 + std::sin(i * 1.7)),
                         i % 3 == 0 ? "forward" : "backward"});
  plot.bars[5].value = kNaN;
  return plot;
}

Histogram update_sizes() {
  Histogram out{"Size of weight updates", "|update|", {0}, {1'204}, true};
  for (int e = -16; e <= 0; ++e) out.edges.push_back(std::pow(10, e / 2.0));
  for (int i = 0; i < 16; ++i) out.counts.push_back(static_cast<int64_t>(40'000 * std::exp(-0.09 * (i - 8) * (i - 8))));
  return out;
}

HtmlTable layers(int rows) {
  HtmlTable table{"Layers",
                  {{"#", true},
                   {"layer", false},
                   {"max error", true},
                   {"mean error", true},
                   {"cosine", true},
                   {"non-finite", true},
                   {"verdict", false}},
                  {}};
  for (int i = 0; i < rows; ++i) {
    const double error = std::abs(std::sin(i * 3.7)) * 1e-3;
    const auto tone = error > 9e-4 ? Tone::Bad : error > 7e-4 ? Tone::Warn : Tone::Good;
    table.rows.push_back({HtmlTable::Cell::number(i),
                          {layer_name(i)},
                          HtmlTable::Cell::number(i == 17   ? kNaN
                                                  : i == 18 ? kInf
                                                            : error,
                                                  i == 17 || i == 18 ? Tone::Bad : tone),
                          HtmlTable::Cell::number(error / 8),
                          HtmlTable::Cell::number(1 - error * error, Tone::Plain, 9),
                          HtmlTable::Cell::number(i == 17 ? 1'048'576 : 0),
                          {tone == Tone::Bad    ? "too far"
                           : tone == Tone::Warn ? "near the limit"
                                                : "equal enough",
                           {},
                           tone}});
  }
  return table;
}

// A PNG file of one red pixel.
const std::string kRedPixel(
    "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9c"
    "c\xf8\xcf\xc0\0\0\3\1\1\0\xc9\xfe\x92\xef\0\0\0\0IEND\xae"
    "B`\x82",
    69);

HtmlGallery images(int count) {
  HtmlGallery out{.title = "Images", .group_name = "class"};
  for (int i = 0; i < count; ++i) {
    HtmlGallery::Picture picture{kRedPixel, 1, 1, 120, {{"cat", "98.1 %"}, {"dog", "1.9 %"}}};
    out.items.push_back({"folder/image_" + std::to_string(i) + ".jpg", i % 3 == 0 ? "cat" : "dog", {picture}});
  }
  out.items.push_back({"five versions of one", "eel", std::vector<HtmlGallery::Picture>(5, out.items[0].pictures[0])});
  out.items.push_back({kHostile, kHostile, {{"", 0, 0, 1, {{kHostile, kHostile}, {kHostile, ""}}}}, Tone::Bad});
  return out;
}

}  // namespace

// tests/apps/html_page_test.py opens this page in a browser.
TEST_CASE("a sample page") {
  const std::filesystem::path path = NPU_TRAIN_BINARY_DIR "/tests/report_sample.html";
  HtmlPage page("resnet18_cifar10: sim_npu against cpu");
  page.paragraph("The result of each layer on the two devices from the same input, and the further course of the two trainings.");
  page.paragraph("3 of 48 layers exceed the tolerance of 1e-3; the first is layer6.0.conv1.", Tone::Bad);
  page.facts({{"model", "resnet18_cifar10"},
              {"precision", "16-mixed"},
              {"largest error", "9.1e-4", Tone::Warn},
              {"cosine", "0.999998", Tone::Good},
              {"steps", "10,000"},
              {"not finite", "1,048,577", Tone::Bad},
              {"file", kHostile}});
  page.heading("Layers in call order");
  page.plot(errors_by_layer());
  page.table(layers(48));
  page.bars(activations(12));
  page.bars(activations(300));
  page.bars({kHostile, kHostile, kHostile, true, {{kHostile, 1, kHostile}}});
  page.heading("Training");
  page.plot(long_curves());
  page.plot(learning_rate());
  page.heading("Updates");
  page.histogram(update_sizes());
  page.plot({"One point", "", "", false, {{"alone", {3}, {5}}}});
  page.plot({.title = "Nothing"});
  page.plot({"All lost", "step", "loss", true, {{"diverged", {1, 2, 3}, {kNaN, kInf, -1}}}});
  page.heading("Hostile: " + kHostile);
  page.paragraph(kHostile, Tone::Warn);
  page.plot({kHostile, kHostile, kHostile, false, {{kHostile, {1, 2}, {1, 2}, {kHostile, kHostile}}}, {{1, kHostile}}});
  page.histogram({kHostile, kHostile, {0, 1}, {1}, false});
  page.table({kHostile, {{kHostile, false}, {kHostile, true}}, {{{kHostile}, {kHostile, 1.0}}}});
  page.heading("5,000 rows");
  page.table(layers(5'000));
  page.gallery(images(20));
  write_page(path, page.str());
  CHECK(std::filesystem::file_size(path) < 3'000'000);
}

TEST_CASE("hostile text stays text everywhere") {
  HtmlPage page(kHostile);
  page.heading(kHostile);
  page.paragraph(kHostile);
  page.paragraph(kHostile, Tone::Bad);
  page.facts({{kHostile, kHostile, Tone::Good}});
  page.plot({kHostile, kHostile, kHostile, true, {{kHostile, {1, 2, 3}, {1, kNaN, 0}, {kHostile, kHostile, kHostile}}}, {{2, kHostile}}});
  page.plot({.title = kHostile});
  page.histogram({kHostile, kHostile, {0, 1}, {1}, false});
  page.bars({kHostile, kHostile, kHostile, true, {{kHostile, 1, kHostile}}});
  page.bars({kHostile, kHostile, kHostile, true, std::vector<BarPlot::Bar>(30, {kHostile, 1, kHostile})});
  page.table({kHostile, {{kHostile, false}, {kHostile, true}}, {{{kHostile, 1.0, Tone::Warn}, {kHostile}}}});
  page.gallery({kHostile, kHostile, {{kHostile, kHostile, {{"", 0, 0, 1, {{kHostile, kHostile}}}}, Tone::Bad}, {kHostile, "other"}}});
  const auto html = page.str();
  for (const char* opened : {"<img", "<script", "</script", "<style", "</style", "<title>", "</title></td>"}) {
    CAPTURE(opened);
    CHECK(count_of(html, opened) == count_of(HtmlPage("").str(), opened) + (std::string(opened) == "<title>" ? 5 + 30 + 8 : 0));
  }
}

TEST_CASE("the page needs nothing else and is the same each time") {
  const auto make = [](const std::string& text) {
    HtmlPage page("t");
    page.paragraph(text);
    page.plot({"p", "x", "y", false, {{"s", {1, 2}, {1, 2}}}});
    return page.str();
  };
  const auto html = make("a");
  CHECK(html == make("a"));
  auto addresses = html;
  addresses.erase(addresses.find("http://www.w3.org/2000/svg"), 26);  // a name, not an address
  for (const char* part : {"http:", "https:", "src=", "@import", "url("}) CHECK_FALSE(has(addresses, part));
  const auto nonce = [](const std::string& page) { return page.substr(page.find("<script nonce=\"") + 15, 16); };
  CHECK(has(html, "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'nonce-" + nonce(html) + "'"));
  CHECK(nonce(html) != nonce(make("b")));
}

TEST_CASE("a page names where it comes from") {
  HtmlPage page("t");
  page.paragraph("</main> in a text");
  const auto html = with_origin(page.str(), {.date = "2026-05-31 17:04 UTC", .command = "npu_tool x '<b>'", .version = "1.2.3"});
  CHECK(has(html,
            "<footer>\n<p><code>npu_tool x &#39;&lt;b&gt;&#39;</code></p>\n<p>npu_train 1.2.3 \u00b7 2026-05-31 17:04 "
            "UTC</p>\n</footer>\n</main>"));
  CHECK_FALSE(has(with_origin(page.str(), {}), "<code>"));
  CHECK(error_of([] { with_origin("no page", {}); }).kind() == ErrorKind::Usage);
  const auto here = PageOrigin::here();
  CHECK(has(here.command, "test_report"));
  CHECK(here.date.ends_with(" UTC"));
  CHECK(here.date.size() == 20);
}

TEST_CASE("empty columns of a table are omitted") {
  HtmlPage page("t");
  page.table({"T", {{"name"}, {"empty"}, {"value", true}}, {{{"a"}, {"-"}, {"1"}}, {{"b"}, {""}, {""}}}});
  const auto html = page.str();
  CHECK(count_of(html, "<th ") == 2);
  CHECK_FALSE(has(html, ">empty<"));
  CHECK(has(html, "<td>a</td><td class=\"n\" data-v=\"1\">1</td>"));
}

TEST_CASE("plots in a row, the rest below each other") {
  HtmlPage page("t");
  const LinePlot plot{"p", "", "", false, {{"", {1, 2}, {1, 2}}}};
  page.plot(plot);
  page.histogram({"h", "", {0, 1}, {1}, false});
  page.heading("next");
  page.plot(plot);
  const auto html = page.str();
  CHECK(count_of(html, "<div class=\"plots\">") == 2);
  CHECK(count_of(html, "<figure") == 3);
  CHECK(count_of(html, "<div") == count_of(html, "</div>"));
  CHECK(html.find("</div>\n<h2>next</h2>") != std::string::npos);
}

TEST_CASE("cells of a table and what they are sorted by") {
  HtmlPage page("t");
  page.table({"T",
              {{"name", false}, {"value", true}},
              {{{"a"}, HtmlTable::Cell::number(0.123456789, Tone::Bad)},
               {{"b", 2.0}, {"1,234"}},
               {{std::string(41, 'x')}, {"-"}},
               {{"c"}, HtmlTable::Cell::number(-kInf)},
               {{"d"}, HtmlTable::Cell::number(kNaN)}}});
  page.table({"", {{"none"}}});
  const auto html = page.str();
  for (const char* part : {"<td>a</td><td class=\"n\" data-v=\"0.123456789\"><span class=\"bad\">0.1235</span></td>",
                           "<td data-v=\"2\">b</td><td class=\"n\" data-v=\"1234\">1,234</td>", "<td class=\"long\">xxx",
                           "<td class=\"n\">-</td>", "data-v=\"-inf\">-inf<", "data-v=\"nan\">nan<",
                           "<th scope=\"col\" class=\"n\"><button type=\"button\">value</button></th>", "no rows"}) {
    CAPTURE(std::string(part));
    CHECK(has(html, part));
  }
  CHECK_FALSE(has(html, "<input type"));
  CHECK_FALSE(has(html, "class=\"limited\""));
}

TEST_CASE("pictures are a part of the page, and can be chosen by group") {
  const auto html_of = [](const HtmlGallery& gallery) {
    HtmlPage page("t");
    page.gallery(gallery);
    return page.str();
  };
  const auto with_file = [&](const std::string& file) { return html_of({"", "", {{"a", "", {{file, 20, 30, 4, {{"cat", "98 %"}}}}}}}); };
  // The test vectors of RFC 4648.
  const std::vector<std::pair<std::string, std::string>> vectors = {{"f", "Zg=="},        {"fo", "Zm8="},        {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, digits] : vectors)
    CHECK(has(with_file(bytes), "<img src=\"data:image/jpeg;base64," + digits + "\" width=\"120\" height=\"80\" alt=\"a\""));
  CHECK(has(with_file(std::string("\xff\xfe\xfb", 3)), "base64,//77\""));
  CHECK(has(with_file(kRedPixel), "<img src=\"data:image/png;base64,iVBORw0KGgo"));
  CHECK_FALSE(has(with_file(""), "<img"));

  const auto html = html_of(images(9));
  CHECK(has(html, "<option value=\"\">all (11)</option><option value=\"&lt;/script&gt;"));
  CHECK(has(html, "<option value=\"cat\">cat (3)</option><option value=\"dog\">dog (6)</option><option value=\"eel\">eel (1)</option>"));
  CHECK(has(html, "placeholder=\"Filter images\""));
  CHECK(count_of(html, "data-g=\"dog\"") == 6);
  CHECK(count_of(html, "<div class=\"item several\"") == 1);
  CHECK(has(html, "<div><span>cat</span><b>98.1 %</b></div>"));
  const auto one = html_of({"", "class", {{"a", "cat"}, {"b", "cat"}}});  // nothing to choose
  for (const char* part : {"<select", "<input", "class=\"count\""}) CHECK_FALSE(has(one, part));
  CHECK(has(html_of({}), "no images"));
}

TEST_CASE("long tables are limited at first") {
  const auto html_of = [](int rows) {
    HtmlPage page("t");
    page.table(layers(rows));
    return page.str();
  };
  CHECK_FALSE(has(html_of(200), "<table class=\"limited\">"));
  CHECK(has(html_of(201), "<table class=\"limited\">"));
  CHECK(has(html_of(1'201), "Show all 1,201 rows"));
  CHECK(has(html_of(9), "<input type=\"search\""));
}

TEST_CASE("rows that do not fit the columns are refused") {
  HtmlPage page("t");
  const auto e = error_of([&] { page.table({"", {{"a", false}}, {{{"1"}}, {{"1"}, {"2"}}}}); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "row 1 has 2 cells for 1 columns"));
}

TEST_CASE("the example of the documentation") {
  const TempDir dir;
  const auto folder = dir.path();
  write_file_atomic(folder / "history.csv", "step,loss,val_loss\n1,2.30,\n2,2.11,2.4\n");
  const auto log = npu_train::read_csv(folder / "history.csv");  // read_csv() checks it; an error names the line
  npu_train::LinePlot plot{.title = "Loss", .x_label = "step", .y_label = "cross entropy"};
  for (const auto* name : {"loss", "val_loss"}) plot.series.push_back({name, log.numbers("step"), log.numbers(name)});
  npu_train::HtmlPage page("A short run");
  page.facts({{"steps", std::to_string(log.rows.size())}, {"last loss", npu_train::short_number(plot.series[0].y.back())}});
  page.plot(plot);
  npu_train::write_page(folder / "report.html", page.str());
  CHECK(has(read_file(folder / "report.html", 1 << 20), "<li class=\"s1\">val_loss</li>"));
}

TEST_CASE("a page ends with command, version and date, escaped") {
  const auto page = with_origin(HtmlPage("A page").str(), {"2026-05-31 17:04 UTC", "npu_tool bench --html '<b>.html'", "1.2.3"});
  CHECK(has(page,
            "<footer>\n<p><code>npu_tool bench --html &#39;&lt;b&gt;.html&#39;</code></p>\n<p>npu_train 1.2.3 \u00b7 2026-05-31 17:04 "
            "UTC</p>\n</footer>\n</main>"));
  CHECK(error_of([] { with_origin("no page", {}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the origin of this process") {
  const auto origin = PageOrigin::here();
  CHECK(origin.version == NPU_TRAIN_VERSION);
  CHECK(has(origin.command, "test_report"));
  CHECK(origin.date.ends_with(" UTC"));
}

TEST_CASE("a page that is written to a file has its origin") {
  const TempDir dir;
  write_page(dir / "page.html", HtmlPage("A page").str());
  const auto page = read_file(dir / "page.html", 1 << 20);
  CHECK(has(page, "<footer>\n<p><code>"));
  CHECK(has(page, "npu_train " NPU_TRAIN_VERSION " \u00b7 "));
}
