#include "testing.hpp"

#include <functional>

#include "npu_train/tools/bench/bench_report.hpp"

#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Samples around(double seconds, double scatter = 0.02) {
  Samples out;
  for (int i = 0; i < 30; ++i) out.seconds.push_back(seconds * (1 + scatter * (i % 7 - 3)));
  return out;
}

BenchReport report_made(double seconds = 0.1) {
  BenchReport r{.model = "m", .device = "cpu", .precision = "32-true", .parameters = 1'000'000, .flops_per_image = 2'000'000'000};
  r.gemm_flops = 1e11;
  r.copy_bytes_per_second = 2e10;
  r.environment = {{"libtorch", "2.13.0"}};
  r.rows.push_back({.section = "train",
                    .name = "batch 8",
                    .numbers = {{"samples_per_s", 8 / seconds}, {"peak_memory_bytes", 1e9}},
                    .samples = around(seconds)});
  r.rows.push_back({.section = "batch", .name = "batch 1", .numbers = {{"batch", 1}, {"samples_per_s", 5}}, .samples = around(0.2)});
  r.rows.push_back({.section = "batch", .name = "batch 2", .numbers = {{"batch", 2}, {"samples_per_s", 9}}, .samples = around(0.22)});
  r.rows.push_back({.section = "batch", .name = "batch 4", .failure = "out of memory"});
  r.notes = {"the knee is at batch 2"};
  return r;
}

}  // namespace

TEST_CASE("a report comes back from its file, and shows its failures") {
  TempDir dir;
  save_json(dir / "r.json", to_json(report_made()));
  const auto back = read_bench_report(dir / "r.json");
  CHECK(to_json(back).dump() == to_json(report_made()).dump());
  CHECK(has(to_text(back), "out of memory"));
  CHECK(has(to_text(back), "953.7 MiB"));
  CHECK(has(to_csv(back), "batch,batch 4,failure,out of memory"));
  CHECK(has(to_csv(back), "train,batch 8,samples_per_s,80"));
  CHECK(has(to_html(back), "<svg"));
  save_json(dir / "x.json", Json::object({{"rows", Json::array()}}));
  CHECK(has(error_of([&] { read_bench_report(dir / "x.json"); }).what(), "not a benchmark report"));
}

TEST_CASE("a report of an earlier version, which counted images, is read") {
  TempDir dir;
  auto text = to_json(report_made()).dump();
  for (auto at = text.find("samples_per_s"); at != std::string::npos; at = text.find("samples_per_s", at))
    text.replace(at, 13, "img_per_s");
  write_file_atomic(dir / "old.json", text);
  const auto old = read_bench_report(dir / "old.json");
  CHECK(to_json(old).dump() == to_json(report_made()).dump());
  CHECK(compare_bench_reports(old, report_made()).passed());
}

TEST_CASE("reports are compared row by row, with a verdict only beyond the scatter and the machine's own drift") {
  CHECK(compare_bench_reports(report_made(0.1), report_made(0.1)).passed());
  CHECK((compare_bench_reports(report_made(0.1), report_made(0.1)).rows[0].verdict == SpeedRatio::Verdict::NoDifference));
  const auto slower = compare_bench_reports(report_made(0.2), report_made(0.1));
  CHECK(!slower.passed());
  CHECK(slower.rows[0].value == doctest::Approx(0.5));
  CHECK(has(to_text(slower), "A IS SLOWER"));
  CHECK((compare_bench_reports(report_made(0.05), report_made(0.1)).rows[0].verdict == SpeedRatio::Verdict::Faster));
  auto busy = report_made(0.2);
  busy.gemm_flops = 4e10;  // the machine was 2.5 times slower in this report
  CHECK(compare_bench_reports(busy, report_made(0.1)).passed());
  CHECK(has(to_text(compare_bench_reports(busy, report_made(0.1))), "the speed of the machine"));
}

TEST_CASE("other work is not compared, and rows that one side lacks are reported") {
  auto other = report_made();
  other.precision = "bf16-mixed";
  CHECK(error_of([&] { compare_bench_reports(report_made(), other); }).kind() == ErrorKind::Usage);
  auto less = report_made();
  less.rows.resize(1);
  less.environment["libtorch"] = "2.12.0";
  const auto c = compare_bench_reports(report_made(), less);
  CHECK(c.rows.size() == 1);
  CHECK(has(to_text(c), "batch batch 2 is only in A"));
  CHECK(has(to_text(c), "libtorch is 2.13.0 in A, 2.12.0 in B"));
  less.rows.clear();
  CHECK(error_of([&] { compare_bench_reports(report_made(), less); }).kind() == ErrorKind::Usage);
}

TEST_CASE("few times give no verdict, neither in a comparison nor in a history") {
  auto slow = report_made(0.2), before = report_made(0.1);
  for (auto* r : {&slow, &before})
    for (auto& row : r->rows)
      if (row.samples.size() > 5) row.samples.seconds.resize(5);
  const auto c = compare_bench_reports(slow, before);
  CHECK(c.passed());
  CHECK((c.rows[0].verdict == SpeedRatio::Verdict::TooFewPairs));
  CHECK(has(to_text(c), "too few measurements for a verdict"));
  CHECK(has(report_of(slow, {before}).html(), "too few measurements for a verdict"));
  CHECK(!has(report_of(slow, {before}).html(), "slower: a regression"));
}

TEST_CASE("different images, sizes and data are different work") {
  for (const auto& change : std::vector<std::function<void(BenchReport&)>>{
           [](auto& r) { r.parameters += 1; }, [](auto& r) { r.flops_per_image += 1; }, [](auto& r) { r.data = "cifar10, 100 samples"; },
           [](auto& r) { r.device = "cuda:0"; }}) {
    auto other = report_made();
    change(other);
    CHECK_FALSE(same_work(report_made(), other));
    CHECK(has(error_of([&] { compare_bench_reports(report_made(), other); }).what(), "allowed: two reports of the same work"));
  }
}

TEST_CASE("a row that failed on one side is reported, and a ratio's interval and verdict are in the table") {
  auto failed = report_made();
  failed.rows[1].failure = "out of memory";
  failed.rows[1].samples = {};
  CHECK(has(to_text(compare_bench_reports(failed, report_made())), "batch batch 1 failed in A"));
  CHECK(has(to_text(compare_bench_reports(report_made(), failed)), "batch batch 1 failed in B"));
  auto report = report_made();
  report.rows[0].ratio = speed_ratio({std::vector<double>(8, 1.0)}, {std::vector<double>(8, 2.0)});
  const auto csv = to_csv(report);
  for (const char* line : {"ratio,2", "ratio_low,2", "ratio_high,2", "ratio_pairs,8", "verdict,faster"})
    CHECK(has(csv, std::string("train,batch 8,") + line));
}

TEST_CASE("a report of the loader alone is named after its data") {
  BenchReport report{.device = "cpu", .precision = "32-true", .data = "cifar10, 100 samples"};
  report.rows.push_back({.section = "loader", .name = "as configured", .numbers = {{"samples_per_s", 10}}});
  CHECK(has(to_text(report), "data: cifar10, 100 samples"));
  CHECK_FALSE(has(to_text(report), "parameters"));
  CHECK(has(to_html(report), "Benchmark of the loader of cifar10, 100 samples on cpu"));
}

TEST_CASE("a history marks the run that became slower") {
  const auto page = report_of(report_made(0.2), {report_made(0.1), report_made(0.1)}).html();
  CHECK(has(page, "slower: a regression"));
  CHECK(has(page, "History of train, batch 8"));
  CHECK(!has(report_of(report_made(0.1), {report_made(0.1), report_made(0.1)}).html(), "slower: a regression"));
  CHECK(!has(to_html(report_made(0.1)), "History"));
}

TEST_CASE("a history judges the row that it shows, and takes reports of other work and of other rows") {
  auto worse_elsewhere = report_made(0.1);
  for (auto& s : worse_elsewhere.rows[1].samples.seconds) s *= 3;  // slows batch 1 alone
  CHECK(!has(report_of(worse_elsewhere, {report_made(0.1)}).html(), "slower: a regression"));
  auto other_batch = report_made(0.1);
  other_batch.rows.resize(1);
  other_batch.rows[0].name = "batch 16";
  CHECK(has(report_of(report_made(0.2), {report_made(0.1), other_batch}).html(), "slower: a regression"));
  auto other_model = report_made(0.1);
  other_model.model = "n";
  const auto page = report_of(report_made(0.1), {other_model}).html();
  CHECK(has(page, "1 of 1 earlier reports measure different work"));
  CHECK(!has(page, "History of train"));
  auto steps = report_made(0.2), steps_before = report_made(0.1);
  steps.rows[0].section = steps_before.rows[0].section = "step";  // the default measurement
  CHECK(has(report_of(steps, {steps_before}).html(), "slower: a regression"));
}

TEST_CASE("phases, memory, power and scaling are tables and plots of the page, and come back from the file") {
  auto report = report_made();
  report.rows[0].numbers.insert(report.rows[0].numbers.end(),
                                {{"initial_memory_bytes", 5e8}, {"memory_increase_bytes", 5e8}, {"host_power_w", 65}});
  report.rows.push_back({.section = "phases",
                         .name = "train batch 8",
                         .numbers = {{"step_ms_mean", 100}, {"share_of_forward", 0.375}, {"share_of_backward", 0.625}}});
  report.rows.push_back({.section = "power", .name = "device", .failure = "not readable: no nvidia-smi"});
  report.rows.push_back({.section = "scaling depth", .name = "depth 2", .numbers = {{"depth", 2}, {"step_ms_median", 10}}});
  report.rows.push_back({.section = "scaling depth", .name = "depth 4", .numbers = {{"depth", 4}, {"step_ms_median", 21}}});
  report.rows.push_back({.section = "scaling depth", .name = "growth", .numbers = {{"exponent", 1.07}}});
  const auto page = to_html(report);
  for (const char* text : {"Phases of a step", "37.5 %", "Memory", "476.8 MiB", "Power and energy", "not readable: no nvidia-smi",
                           "Scaling: step_ms_median by depth", "Growth", "1.07"}) {
    CAPTURE(text);
    CHECK(has(page, text));
  }
  CHECK(has(to_text(report), "share_of_backward 0.625"));
  CHECK(has(to_csv(report), "phases,train batch 8,share_of_forward,0.375"));
  CHECK(has(to_csv(report), "power,device,failure,not readable: no nvidia-smi"));
  TempDir dir;
  save_json(dir / "r.json", to_json(report));
  CHECK(to_json(read_bench_report(dir / "r.json")).dump() == to_json(report).dump());
}
