#include "testing.hpp"

#include <cstddef>

#include "npu_train/tools/report/report.hpp"

using namespace npu_train;

using npu_train::testing::has;
using npu_train::testing::kInf;
using npu_train::testing::kNaN;

namespace {

struct Made {};

Report report_of(const Made& /*made*/) {
  Report out("A <made> report");
  out.data({{"format", "made 1"}});
  out.verdict("2 of 3 parts fit", Tone::Warn);
  out.say("computed twice");
  out.say("only on the page", Tone::Plain, ReportIn::Page);
  out.say("only in the text", Tone::Plain, ReportIn::Text);
  out.facts({both("steps", 12345), shown("host", "a\nb"), data("seed", 7)});
  out.heading("Parts");
  ReportTable parts{.title = "Sizes", .text_rows = 2, .order = "largest first"};
  parts.add(
      {both("part", "name", "weights"), both("bytes", "size", bytes_value(3 << 20)), both("share", share_value(0.123456)), data("id", 1)});
  parts.add({both("part", "name", "state"), both("bytes", "size", bytes_value(1536)), both("share", share_value(0.01)), data("id", 2),
             shown("note", toned("too large", Tone::Bad))});
  parts.add({both("part", "name", "rest"), both("bytes", "size", Json()), both("share", share_value(kNaN)), data("id", 3)});
  out.table("parts", parts);
  out.plot(LinePlot{.title = "Loss", .series = {{"loss", {1, 2}, {3, 4}}}});
  out.notes({"one", "two"});
  out.remarks("try", {"a smaller batch"}, Tone::Warn);
  return out;
}

}  // namespace

TEST_CASE("a report as text") {
  CHECK(to_text(Made()) ==
        "2 of 3 parts fit\n\n"
        "computed twice\nonly in the text\n\n"
        "steps: 12,345\nhost:  a\\nb\n\n"
        "Sizes\n"
        "name        size   share  note\n"
        "-------  -------  ------  ---------\n"
        "weights  3.0 MiB  12.3 %\n"
        "state    1.5 KiB     1 %  too large\n"
        "(2 of 3 rows, largest first)\n\n"
        "note: one\nnote: two\ntry: a smaller batch\n");
  for (size_t at = 0, text_end = to_text(Made(), 24).size(); at < text_end;) {
    const auto text = to_text(Made(), 24);
    const auto end = text.find('\n', at);
    if (has(text.substr(at, end - at), "  ")) CHECK(end - at <= 24);
    at = end + 1;
  }
}

TEST_CASE("a report as JSON has exact values, also those that are not shown") {
  const auto json = to_json(Made());
  const char* expected = R"({"format": "made 1", "steps": 12345, "seed": 7, "parts": [
      {"part": "weights", "bytes": 3145728, "share": 0.123456, "id": 1}, {"part": "state", "bytes": 1536, "share": 0.01, "id": 2},
      {"part": "rest", "bytes": null, "share": "nan", "id": 3}], "notes": ["one", "two"]})";
  CHECK(json.dump() == parse_json(expected, "expected").dump());
}

TEST_CASE("a report as a page sorts by exact values, and ends its sentences") {
  const auto page = to_html(Made());
  for (const char* part : {"<h1>A &lt;made&gt; report</h1>", "<p class=\"note warn\">2 of 3 parts fit.</p>", "<p>only on the page.</p>",
                           "<dt>steps</dt><dd>12,345</dd>", "<h2>Parts</h2>", "<h3>Sizes</h3>",
                           "<td class=\"n\" data-v=\"3145728\">3.0 MiB</td>", "<td class=\"n\" data-v=\"0.123456\">12.3 %</td>",
                           "<td class=\"n\" data-v=\"nan\">nan %</td>", "<span class=\"bad\">too large</span>", "<td>rest</td>",
                           "<figcaption>Loss", "<p>Note: one.</p>", "<p class=\"note warn\">Try: a smaller batch.</p>"})
    CHECK_MESSAGE(has(page, part), part);
  for (const char* part : {"only in the text", "made 1", "seed"}) CHECK_MESSAGE(!has(page, part), part);
}

TEST_CASE("values of a report") {
  CHECK(ReportValue(true).text == "yes");
  CHECK(ReportValue(Json()).text == "-");
  CHECK(ReportValue(size_t{1234}).text == "1,234");
  CHECK(ReportValue(0.123456).text == "0.1235");
  CHECK(ReportValue(Json::array({"a", 2})).text == "a, 2");
  CHECK(number_value(0.123456, 2).text == "0.12");
  CHECK(number_value(0.123456, 2).exact.number("") == 0.123456);
}

TEST_CASE("numbers keep few digits") {
  const std::vector<std::pair<double, const char*>> rows = {{0, "0"},
                                                            {-0.0, "0"},
                                                            {1, "1"},
                                                            {-1234567, "-1,234,567"},
                                                            {999999999999999, "999,999,999,999,999"},
                                                            {0.5, "0.5"},
                                                            {0.123456, "0.1235"},
                                                            {12.3456, "12.35"},
                                                            {-12.3, "-12.3"},
                                                            {999.96, "1,000"},
                                                            {9999.5, "10,000"},
                                                            {123456.7, "123,457"},
                                                            {0.99996, "1"},
                                                            {0.001, "0.001"},
                                                            {0.00123456, "0.001235"},
                                                            {0.00012345, "1.234e-4"},
                                                            {1e-5, "1e-5"},
                                                            {-2.5e-10, "-2.5e-10"},
                                                            {1234567.8, "1.235e6"},
                                                            {1e15, "1e15"},
                                                            {1.7976931348623157e308, "1.798e308"},
                                                            {5e-324, "4.941e-324"},
                                                            {kInf, "inf"},
                                                            {-kInf, "-inf"},
                                                            {kNaN, "nan"}};
  for (const auto& [value, text] : rows) CHECK(short_number(value) == text);
  CHECK(short_number(0.999999123, 9) == "0.999999123");
  CHECK(short_number(0.25, 1) == "0.2");
  CHECK(short_number(2e-7, 1) == "2e-7");
}
