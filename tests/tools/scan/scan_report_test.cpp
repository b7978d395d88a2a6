#include "testing.hpp"

#include "npu_train/tools/scan/source_scan.hpp"

#include <algorithm>
#include <fstream>

#include "npu_train/io/csv.hpp"
#include "tools/scan/project_files.hpp"

using namespace npu_train;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

SourceScan scan_of(const std::string& name) { return scan_source(npu_train::testing::project(name)); }

}  // namespace

TEST_CASE("the text reports verdict, hours, libraries, actions and places") {
  const auto scan = scan_of("llm_finetune");
  const auto text = to_text(scan);
  CHECK(has(text, "blocked by library BMTrain, library grouped_gemm: 41 places in 8 source files"));
  CHECK(has(text, "BMTrain"));
  CHECK(has(text, "change  triton-kernel: a kernel written in Triton, 1 place in 1 file, 8 h"));
  CHECK(has(text, "kernels/rms_norm.py:7:2"));
  CHECK(has(report_of(scan).text(0, 5), "(5 of 41 rows, worst first; --rows 0 shows all)"));
  const auto ready = to_text(scan_of("plain"));
  CHECK(has(ready, "ready: 0 places in 3 source files"));
  CHECK_FALSE(has(ready, "Actions"));
}

TEST_CASE("JSON and CSV hold every finding") {
  const auto scan = scan_of("resnet_ddp");
  const auto json = parse_json(to_json(scan).dump(), "scan");
  CHECK(json.at("verdict", "scan").text("scan") == "feasible with changes");
  CHECK(json.at("findings", "scan").items("scan").size() == scan.findings.size());
  CHECK(json.at("hours", "scan").number("scan") == doctest::Approx(scan.hours));
  const auto csv = parse_csv(to_csv(scan), "scan.csv");
  REQUIRE(csv.rows.size() == scan.findings.size());
  const auto hours = csv.numbers("hours");
  double sum = 0;
  for (const auto h : hours) sum += h;
  CHECK(sum == doctest::Approx(scan.hours));
  CHECK_FALSE(csv.rows[0][csv.index("advice")].empty());
}

TEST_CASE("the table of unsupported operators has each once, with its places") {
  const TempDir dir;
  std::ofstream(dir / "a.py") << "import torch\nimport torch.nn.functional as F\ntorch.inverse(x)\nF.adaptive_max_pool1d(x, 2)\n";
  std::ofstream(dir / "b.py") << "import torch\ntorch.inverse(y)\ntorch.topk(y, 2)\n";  // topk is only limited
  const auto csv = parse_csv(unsupported_csv(scan_source(dir.path())), "unsupported_operators.csv");
  REQUIRE(csv.rows.size() == 2);
  CHECK((csv.columns == std::vector<std::string>{"operator", "support", "count", "where", "action", "done_by", "hours"}));
  CHECK((csv.rows[0] == std::vector<std::string>{"adaptive_max_pool1d", "unsupported", "1", "a.py:4",
                                                 "Replace it with supported operators.", "hand", "3"}));
  CHECK((csv.rows[1] ==
         std::vector<std::string>{"inverse", "cpu_fallback", "2", "a.py:3, b.py:2", "Do it on the CPU on purpose.", "hand", "1"}));
  // all places are counted, although a scan keeps only 50 per file
  std::ofstream many(dir / "c.py");
  many << "import torch\n";
  for (int i = 0; i < 120; ++i) many << "torch.inverse(x)\n";
  many.close();
  const auto all = parse_csv(unsupported_csv(scan_source(dir.path())), "unsupported_operators.csv");
  CHECK(all.rows[1][2] == "122");
  CHECK(has(all.rows[1][3], "c.py:4, and 117 more"));
}

TEST_CASE("the page is self-contained and cannot be written by a file name") {
  const TempDir dir;
  std::ofstream(dir / "<script>alert(1)<.py") << "x.to('cuda')\n";
  const auto page = to_html(scan_source(dir.path()));
  CHECK(has(page, "&lt;script&gt;alert(1)&lt;.py"));
  CHECK_FALSE(has(page, "<script>alert"));
  CHECK(has(page, "default-src 'none'"));
  CHECK(has(to_html(scan_of("detector")), "box_iou_kernel"));
}

TEST_CASE("the listed and the omitted places add up to the count") {
  for (const int64_t n : {1, 2, 5, 120}) {
    CAPTURE(n);
    SourceScan scan;
    scan.verdict = Feasibility::Blocked;
    scan.places = n;
    scan.files = 1;
    for (int64_t i = 0; i < n; ++i) {
      RuleUse rule;
      rule.title = "<" + std::to_string(i) + ">";
      rule.severity = Severity::Blocks;
      scan.rules.push_back(rule);
      SourceFinding finding;
      finding.file = "a.py";
      finding.line = i + 1;
      scan.findings.push_back(finding);
    }
    const auto head = headline(scan);
    CHECK(has(head, std::to_string(n) + (n == 1 ? " place in" : " places in")));
    const auto named = std::count(head.begin(), head.end(), '<');
    CHECK(named == std::min<int64_t>(n, 3));
    CHECK(has(head, " and " + std::to_string(n - 3) + " more") == (n > 3));
    const auto text = report_of(scan).text(0, 4);
    int64_t rows = 0;
    for (size_t at = text.find("a.py:"); at != std::string::npos; at = text.find("a.py:", at + 1)) ++rows;
    CHECK(rows == std::min<int64_t>(n, 4));
    CHECK(has(text, "(4 of " + std::to_string(n) + " rows, worst first; --rows 0 shows all)\n") == (n > 4));
  }
  for (const int n : {1, 2, 100, 101, 150}) {
    CAPTURE(n);
    const TempDir dir;
    std::ofstream(dir / "a.py") << "x = 1\n";
    for (int i = 0; i < n; ++i) std::ofstream(dir / ("b" + std::to_string(i) + ".py")) << std::string("\0\1\0", 3);
    const auto notes = scan_source(dir.path()).notes;
    CHECK(notes.size() == static_cast<size_t>(std::min(n, 100)));
    CHECK((notes.back() == "and " + std::to_string(n - 99) + " more") == (n > 100));
  }
}
