#include "testing.hpp"

#include "npu_train/scan/scan_report.hpp"

#include <fstream>

#include "npu_train/report/csv.hpp"
#include "scan/project_files.hpp"

using namespace npu_train;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

SourceScan scan_of(const std::string& name) { return scan_source(npu_train::testing::project(name)); }

}  // namespace

TEST_CASE("the text tells verdict, hours, libraries, what to do and the places") {
  const auto scan = scan_of("llm_finetune");
  const auto text = to_text(scan);
  CHECK(has(text, "blocked by library BMTrain, library grouped_gemm: 41 places in 8 source files"));
  CHECK(has(text, "BMTrain"));
  CHECK(has(text, "change  triton-kernel: a kernel written in Triton, 1 place in 1 file, 8 h"));
  CHECK(has(text, "kernels/rms_norm.py:7:2"));
  CHECK(has(to_text(scan, 5), "and 36 further places"));
  const auto ready = to_text(scan_of("plain"));
  CHECK(has(ready, "ready: 0 places in 3 source files"));
  CHECK_FALSE(has(ready, "What to do"));
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

TEST_CASE("the page is self-contained and cannot be written by a file name") {
  const TempDir dir;
  std::ofstream(dir / "<script>alert(1)<.py") << "x.to('cuda')\n";
  const auto page = to_html(scan_source(dir.path()));
  CHECK(has(page, "&lt;script&gt;alert(1)&lt;.py"));
  CHECK_FALSE(has(page, "<script>alert"));
  CHECK(has(page, "default-src 'none'"));
  CHECK(has(to_html(scan_of("detector")), "box_iou_kernel"));
}
