#include "testing.hpp"

#include "npu_train/tools/doctor/finding.hpp"

#include <algorithm>
#include <sstream>

#include "npu_train/core/wrapped.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

DoctorReport sample() {
  return {{{"cpu", "cores", Verdict::Ok, "4 processors", "/proc/cpuinfo"},
           {"cpu", "threads", Verdict::Warn, "too many", "64", "export OMP_NUM_THREADS=4"},
           {"cuda", "NVIDIA GPU", Verdict::NotHere, "none", "no driver"},
           {"disk", "space", Verdict::Fail, "full", "0 B", "make room"}}};
}

}  // namespace

TEST_CASE("missing parts do not count; the worst verdict wins") {
  auto report = sample();
  CHECK(report.passed() == 1);
  CHECK(report.total() == 3);
  CHECK((report.worst() == Verdict::Fail));
  CHECK(report.summary() == "1 of 3 checks passed, 1 warning, 1 failed");
  report.findings.pop_back();
  CHECK((report.worst() == Verdict::Warn));
  CHECK(report.summary() == "1 of 2 checks passed, 1 warning");
  report.add({{"x", "y", Verdict::Warn, "a", "b", "c"}});
  CHECK(report.summary() == "1 of 3 checks passed, 2 warnings");
  CHECK((DoctorReport().worst() == Verdict::Ok));
  CHECK(DoctorReport().summary() == "0 of 0 checks passed");
}

TEST_CASE("as many findings are listed as the summary counts") {
  for (const size_t n : {1, 2, 5, 60}) {
    DoctorReport report;
    for (size_t i = 0; i < n; ++i) {
      report.add({{"a", "good", Verdict::Ok, "fine", "seen"}});
      report.add({{"a", "odd", Verdict::Warn, "slow", "seen", "do"}, {"a", "bad", Verdict::Fail, "wrong", "seen", "do"}});
    }
    const auto number = std::to_string(n);
    CHECK(report.summary() == number + " of " + std::to_string(3 * n) + " checks passed, " + number +
                                  (n == 1 ? " warning, " : " warnings, ") + number + " failed");
    const auto text = to_text(report);
    for (const std::string word : {"fine", "slow", "wrong"}) {
      size_t lines = 0;
      for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++lines;
      CHECK(lines == n);
    }
  }
}

TEST_CASE("the text: summary, areas, evidence, fix") {
  CHECK(to_text(sample()) ==
        "1 of 3 checks passed, 1 warning, 1 failed\n"
        "\n"
        "cpu\n"
        "  OK    cores: 4 processors\n"
        "        seen: /proc/cpuinfo\n"
        "  WARN  threads: too many\n"
        "        seen: 64\n"
        "        fix:  export OMP_NUM_THREADS=4\n"
        "\n"
        "cuda\n"
        "  -     NVIDIA GPU: none\n"
        "        seen: no driver\n"
        "\n"
        "disk\n"
        "  FAIL  space: full\n"
        "        seen: 0 B\n"
        "        fix:  make room\n");
}

TEST_CASE("lines are broken at blanks, and long words are on separate lines") {
  CHECK(wrapped("aa bb cc dd", "> ", "  ", 7) == "> aa bb\n  cc dd\n");
  CHECK(wrapped("aa bb", "> ", "  ", 0) == "> aa bb\n");
  CHECK(wrapped("abcdefghijkl mn", "> ", "  ", 6) == "> abcdefghijkl\n  mn\n");
  CHECK(wrapped("", "> ", "  ", 6) == "> \n");
  DoctorReport report;
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word" + std::to_string(i) + " ";
  report.findings = {{"a", "b", Verdict::Warn, words, words, words}};
  std::istringstream lines(to_text(report, 60));
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 60);
}

TEST_CASE("what the machine says cannot act on the terminal or the page") {
  DoctorReport report;
  report.findings = {{"a", "b\x1b[2J", Verdict::Warn, "x\x1b]0;t\x07", "<script>alert(1)</script>\r\n\xff",
                      "\x9b"
                      "31m"}};
  for (const unsigned char c : to_text(report)) CHECK((c == '\n' || (c >= 0x20 && c < 0x7F)));
  CHECK(has(to_text(report), "\\x1b[2J"));
  CHECK(!has(to_html(report), "<script>alert"));
  CHECK(parse_json(to_json(report).dump(), "report").is_object());
}

TEST_CASE("JSON and HTML hold all of it") {
  const auto json = to_json(sample());
  CHECK(json.at("passed", "x").integer("x") == 1);
  CHECK(json.at("total", "x").integer("x") == 3);
  CHECK(json.at("verdict", "x").text("x") == "fail");
  const auto& findings = json.at("findings", "x").items("x");
  REQUIRE(findings.size() == 4);
  CHECK(findings[1].at("fix", "x").text("x") == "export OMP_NUM_THREADS=4");
  CHECK(findings[2].at("verdict", "x").text("x") == "not here");
  const auto page = to_html(sample());
  for (const char* part :
       {"Training would fail on this machine or compute wrong numbers: space failed.", "1 of 3", "OMP_NUM_THREADS", "make room"})
    CHECK(has(page, part));
}
