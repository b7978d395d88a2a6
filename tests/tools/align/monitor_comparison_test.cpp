#include "testing.hpp"

#include "npu_train/tools/align/monitor_comparison.hpp"

#include <array>
#include <functional>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/align/monitor_log.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Writes three windows of two layers, in which `change` may change each row.
void write_monitor(const std::filesystem::path& path, const std::function<void(MonitorRow&)>& change) {
  auto text = monitor_header();
  for (const int64_t attempt : {0, 9, 19})
    for (const auto* what : {"weights", "activations", "gradients"}) {
      const bool backwards = std::string(what) == "gradients";
      for (const auto* name : backwards ? std::array{"fc", "conv"} : std::array{"conv", "fc"}) {
        MonitorRow row{.attempt = attempt, .step = attempt + 1, .what = what, .name = name, .numel = 4, .norm = 2, .mean = 0.5};
        change(row);
        text += to_csv(row);
      }
    }
  write_file_atomic(path, text);
}

struct Pair {
  TempDir dir;
  MonitorComparison compared(const std::function<void(MonitorRow&)>& change) const {
    write_monitor(dir / "a.csv", change);
    write_monitor(dir / "b.csv", [](MonitorRow&) {});
    return compare_monitors(dir / "a.csv", dir / "b.csv");
  }
};

bool is_at(const std::optional<MonitorDifference>& d, int64_t attempt, const std::string& what, const std::string& name) {
  return d && d->attempt == attempt && d->step == attempt + 1 && d->what == what && d->name == name;
}

}  // namespace

TEST_CASE("equal monitors agree in all digits") {
  const auto c = Pair().compared([](MonitorRow&) {});
  CHECK(c.agrees);
  CHECK(c.windows == 3);
  CHECK(c.tensors.size() == 6);
  CHECK_FALSE(c.first_unequal);
  CHECK(sentences_of(c).front() == "the monitors are equal in all digits: 6 tensors in 3 common windows");
}

TEST_CASE("tensors without elements, whose norm is NaN, are equal") {
  TempDir dir;
  for (const auto* name : {"a.csv", "b.csv"})
    write_monitor(dir / name, [](MonitorRow& row) {
      if (row.name == "fc") row.numel = 0, row.norm = row.mean = kNaN;
    });
  const auto c = compare_monitors(dir / "a.csv", dir / "b.csv");
  CHECK(c.agrees);
  CHECK(c.mean_relative == 0);
  CHECK_FALSE(c.first_unequal);
}

TEST_CASE("the first difference is that of the earliest window, then of the first tensor in the order of the computation") {
  const auto c = Pair().compared([](MonitorRow& row) {
    if (row.attempt == 9 && row.what == "gradients") row.norm *= 1.5;                              // fc comes before conv
    if (row.attempt == 19 && row.what == "weights") row.norm *= 3;                                 // later
    if (row.attempt == 0 && row.name == "fc" && row.what == "activations") row.mean *= 1 + 1e-15;  // in the last digit
  });
  CHECK(is_at(c.first_unequal, 0, "activations", "fc"));
  CHECK(is_at(c.first_beyond, 9, "gradients", "fc"));
  CHECK(c.first_beyond->relative == doctest::Approx(0.5));
  CHECK_FALSE(c.agrees);
  CHECK(c.mean_relative == doctest::Approx((2 * 0.5 + 2 * 2) / 18));
  CHECK(has(sentences_of(c)[1], "gradients of fc at step 10 (window 9), norms 3 and 2"));
  CHECK(c.tensors[0].relative == doctest::Approx(2));
  CHECK(c.tensors[0].mean_relative == doctest::Approx(2.0 / 3));
}

TEST_CASE("small differences agree, noise does not count, and one finite side does") {
  const Pair pair;
  CHECK(pair.compared([](MonitorRow& row) { row.norm *= 1.01; }).agrees);
  CHECK_FALSE(pair.compared([](MonitorRow& row) { row.norm *= 1.03; }).agrees);
  CHECK(pair.compared([](MonitorRow& row) { row.norm += row.name == "fc" ? 1e-9 : 0; }).agrees);
  const auto broken = pair.compared([](MonitorRow& row) {
    if (row.attempt == 19 && row.what == "gradients" && row.name == "fc") row.nans = 1;
  });
  CHECK_FALSE(broken.agrees);
  CHECK(is_at(broken.first_beyond, 19, "gradients", "fc"));
}

TEST_CASE("tensors and windows of one side are named, and nothing in common is an error") {
  const Pair pair;
  const auto c = pair.compared([](MonitorRow& row) {
    if (row.name == "fc") row.name = "head";
    if (row.attempt == 19) row.attempt = 20;
  });
  CHECK(c.windows == 2);
  CHECK(c.windows_a == 1);
  CHECK(c.only_a == std::vector<std::string>{"weights of head", "activations of head", "gradients of head"});
  CHECK(c.only_b.size() == 3);
  const auto none = error_of([&] { pair.compared([](MonitorRow& row) { row.name += "x"; }); });
  CHECK(none.kind() == ErrorKind::Data);
  CHECK(has(none.what(), "no window and tensor"));
}
