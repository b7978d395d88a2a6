#include "testing.hpp"

#include "npu_train/bench/bench_report.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Samples around(double seconds, double scatter = 0.02) {
  Samples out;
  for (int i = 0; i < 30; ++i) out.seconds.push_back(seconds * (1 + scatter * (i % 7 - 3)));
  return out;
}

BenchReport made(double seconds = 0.1) {
  BenchReport r{.model = "m", .device = "cpu", .precision = "32-true", .parameters = 1'000'000, .flops_per_image = 2'000'000'000};
  r.gemm_flops = 1e11;
  r.copy_bytes_per_second = 2e10;
  r.environment = {{"libtorch", "2.13.0"}};
  r.rows.push_back({.section = "train",
                    .name = "batch 8",
                    .numbers = {{"img_per_s", 8 / seconds}, {"peak_memory_bytes", 1e9}},
                    .samples = around(seconds)});
  r.rows.push_back({.section = "batch", .name = "batch 1", .numbers = {{"batch", 1}, {"img_per_s", 5}}, .samples = around(0.2)});
  r.rows.push_back({.section = "batch", .name = "batch 2", .numbers = {{"batch", 2}, {"img_per_s", 9}}, .samples = around(0.22)});
  r.rows.push_back({.section = "batch", .name = "batch 4", .failure = "out of memory"});
  r.notes = {"the knee is at batch 2"};
  return r;
}

}  // namespace

TEST_CASE("a report comes back from its file, and shows its failures") {
  TempDir dir;
  save_json(dir / "r.json", to_json(made()));
  const auto back = read_bench_report(dir / "r.json");
  CHECK(to_json(back).dump() == to_json(made()).dump());
  CHECK(has(to_text(back), "out of memory"));
  CHECK(has(to_text(back), "953.7 MiB"));
  CHECK(has(to_csv(back), "batch,batch 4,failure,out of memory"));
  CHECK(has(to_csv(back), "train,batch 8,img_per_s,80"));
  CHECK(has(to_html(back), "<svg"));
  save_json(dir / "x.json", Json::object({{"rows", Json::array()}}));
  CHECK(has(error_of([&] { read_bench_report(dir / "x.json"); }).what(), "not a benchmark's report"));
}

TEST_CASE("reports are compared row by row, with a verdict only beyond the scatter and the machine's own drift") {
  CHECK(compare_bench_reports(made(0.1), made(0.1)).passed());
  CHECK((compare_bench_reports(made(0.1), made(0.1)).rows[0].verdict == SpeedRatio::Verdict::NoDifference));
  const auto slower = compare_bench_reports(made(0.2), made(0.1));
  CHECK(!slower.passed());
  CHECK(slower.rows[0].value == doctest::Approx(0.5));
  CHECK(has(to_text(slower), "A IS SLOWER"));
  CHECK((compare_bench_reports(made(0.05), made(0.1)).rows[0].verdict == SpeedRatio::Verdict::Faster));
  auto busy = made(0.2);
  busy.gemm_flops = 4e10;  // the machine was 2.5 times slower meanwhile
  CHECK(compare_bench_reports(busy, made(0.1)).passed());
  CHECK(has(to_text(compare_bench_reports(busy, made(0.1))), "machine's own speed"));
}

TEST_CASE("other work is not compared, and what one side lacks is told") {
  auto other = made();
  other.precision = "bf16-mixed";
  CHECK(error_of([&] { compare_bench_reports(made(), other); }).kind() == ErrorKind::Usage);
  auto less = made();
  less.rows.resize(1);
  less.environment["libtorch"] = "2.12.0";
  const auto c = compare_bench_reports(made(), less);
  CHECK(c.rows.size() == 1);
  CHECK(has(to_text(c), "batch batch 2 is in A alone"));
  CHECK(has(to_text(c), "libtorch is 2.13.0 in A, 2.12.0 in B"));
  less.rows.clear();
  CHECK(error_of([&] { compare_bench_reports(made(), less); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a history marks the run that became slower") {
  CHECK(has(to_html(made(0.2), {made(0.1), made(0.1)}), "slower"));
  CHECK(!has(to_html(made(0.1), {made(0.1), made(0.1)}), ">slower<"));
}
