#include "testing.hpp"

#include "npu_train/tools/align/monitor_log.hpp"

#include <cmath>
#include <fstream>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

MonitorRow row_at(int64_t attempt, double norm, const std::string& name = "fc.weight", const std::string& what = "gradients") {
  return {.attempt = attempt, .step = attempt + 1, .what = what, .name = name, .numel = 10, .norm = norm, .std = norm / 3, .max = norm};
}

std::vector<MonitorRow> rows_in(const fs::path& path) {
  std::vector<MonitorRow> out;
  read_monitor(path, [&](const MonitorRow& row) { out.push_back(row); });
  return out;
}

}  // namespace

TEST_CASE("rows are read as they were written, up to an incomplete one") {
  TempDir dir;
  const auto path = dir / "any.csv";
  auto odd = row_at(3, 0.1, "a,\"b\"");
  odd.skipped = true, odd.mean = -1e-300, odd.min = -kInf, odd.max = kNaN, odd.zeros = 1.0 / 3, odd.nans = 2, odd.infs = 1;
  write_file_atomic(path, monitor_header() + to_csv(row_at(0, 2.5)) + to_csv(odd) + "4,5,0,grad");
  CHECK(is_monitor(path));
  const auto rows = rows_in(path);
  REQUIRE(rows.size() == 2);
  CHECK(to_csv(rows[0]) == to_csv(row_at(0, 2.5)));
  CHECK(to_csv(rows[1]) == to_csv(odd));
  CHECK(rows[1].name == "a,\"b\"");
  CHECK(rows[1].zeros == 1.0 / 3);
}

TEST_CASE("a file is cut before a window, and other files are refused") {
  TempDir dir;
  const auto path = dir / "monitor.csv";
  const auto kept = monitor_header() + to_csv(row_at(0, 1)) + to_csv(row_at(9, 2));
  write_file_atomic(path, kept + to_csv(row_at(19, 3)) + "29,3");
  int count = 0;
  cut_monitor(path, 12, [&](const MonitorRow&) { ++count; });
  CHECK(count == 2);
  CHECK(read_file(path, 1 << 20) == kept);
  cut_monitor(path, 100, [](const MonitorRow&) {});
  CHECK(read_file(path, 1 << 20) == kept);
  cut_monitor(path, 0, [](const MonitorRow&) {});
  CHECK(read_file(path, 1 << 20) == monitor_header());
  for (const auto& text : {std::string("a,b\n1,2\n"), std::string(), monitor_header() + "1,2,3\n",
                           monitor_header() + "0,1,2" + to_csv(row_at(0, 1)).substr(5)}) {
    write_file_atomic(path, text);
    CHECK(error_of([&] { rows_in(path); }).kind() == ErrorKind::Data);
  }
  CHECK_FALSE(is_monitor(dir / "none.csv"));
  for (const auto* row : {"\"a,1\n", "0,1,0,weights,\"a\",3\n"}) {  // the first row opens a quote and does not close it
    write_file_atomic(path, monitor_header() + to_csv(row_at(0, 1)) + row);
    const std::string said = error_of([&] { rows_in(path); }).what();
    CHECK_MESSAGE(has(said, path.string() + ", line 3: cannot be read"), said);
  }
  auto windows = monitor_header() + to_csv(row_at(0, 1)) + to_csv(row_at(1, 2, "a,b"));
  for (size_t i = 0; (i = windows.find('\n', i)) != std::string::npos; i += 2) windows.insert(i, "\r");
  write_file_atomic(path, windows);
  CHECK(is_monitor(path));
  CHECK(rows_in(path).size() == 2);
}

TEST_CASE("a norm leaves its band by a factor, or by its scatter if that is wider") {
  NormBand band(4);
  for (const double norm : {1.0, 1.1, 0.9, 1.05}) {
    CHECK(band.contains(norm));
    CHECK(band.contains(1e6));  // too few records to judge by
    band.add(norm);
  }
  band.add(1);
  REQUIRE(band.limits());
  CHECK(band.limits()->median == doctest::Approx(1));
  CHECK(band.limits()->high == doctest::Approx(4));
  CHECK(band.contains(3.9));
  CHECK(band.contains(0.26));
  for (const double outside : {4.1, 0.24, 0.0, kInf, kNaN}) CHECK_FALSE(band.contains(outside));
  CHECK_FALSE(NormBand(4).contains(kNaN));

  NormBand wide(4);  // logarithms -2, -1, 0, 1, 2: MAD 1
  for (const double log : {-2.0, -1.0, 0.0, 1.0, 2.0}) wide.add(std::exp(log));
  CHECK(std::log(wide.limits()->high) == doctest::Approx(3.5 / 0.6745));
  for (int i = 0; i < 40; ++i) wide.add(7);  // more than the last 20 records, which alone count
  CHECK(wide.limits()->high == doctest::Approx(28));
}

TEST_CASE("the first gradient outside of its band is named, and skipped steps do not count") {
  BandWatch watch(4);
  for (int64_t attempt = 0; attempt < 10; ++attempt)
    for (const auto* name : {"fc.weight", "conv.weight"}) {
      CHECK_FALSE(watch.add(row_at(attempt, 1, name)));
      CHECK_FALSE(watch.add(row_at(attempt, std::pow(10, attempt), name, "weights")));
    }
  auto overflow = row_at(10, kNaN);
  overflow.skipped = true;
  CHECK_FALSE(watch.add(overflow));
  CHECK_FALSE(watch.add(row_at(10, 3.5)));
  const auto exit = watch.add(row_at(10, 5, "conv.weight"));
  REQUIRE(exit);
  CHECK(to_text(*exit) ==
        "at step 11 (window 10) the gradient of conv.weight has the norm 5, outside of its band 0.25 to 4 around the median 1");
  auto broken = row_at(11, kNaN);
  broken.nans = 2, broken.infs = 1;
  CHECK(has(to_text(*watch.add(broken)), "has the norm nan, with 2 NaN and 1 infinite elements of 10"));
}
