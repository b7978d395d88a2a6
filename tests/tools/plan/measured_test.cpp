#include "testing.hpp"

#include <cmath>
#include <fstream>

#include "npu_train/tools/plan/measured.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

StepWork work_of_ten_layers() {
  StepWork out{.model = "ten", .flops = 5e8, .batch = 16, .state_bytes = 8e6};
  for (int i = 0; i < 10; ++i) {
    out.parameters.push_back({.elements = 100'000, .ready = 1 - 0.1 * i, .unit = static_cast<size_t>(i) + 1});
    out.units.push_back(0.1);
  }
  out.dist.bucket_mib = 1;
  return out;
}

std::vector<MeasuredStep> read(const std::string& text) {
  const TempDir dir;
  std::ofstream(dir / "points.csv") << text;
  return read_measured(dir / "points.csv");
}

std::string error_reading(const std::string& text) {
  return error_of([&] { read(text); }).what();
}

}  // namespace

TEST_CASE("a file of measured steps") {
  const auto steps = read(
      "ranks,link,strategy,seconds,options,batch,load,use,shard_size,micro_batches\n"
      "1,1Gbit/s,ddp,0.5,,,,,,\n"
      "4,\"1Gbit/s,20us\",zero1,0.75,dist.reduction=native dist.bucket_mib=2,13,2,check,2,3\n"
      "4,\"1Gbit/s,20us\",zero1,0.7,dist.reduction=native dist.bucket_mib=2,13,2,check,2,3\n");
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].placement == Placement{});
  CHECK(steps[0].name() == "1 rank");
  const auto& s = steps[1];
  CHECK(s.placement == Placement{.strategy = "zero1", .ranks = 4, .shard_size = 2});
  CHECK(s.link.bytes_per_second == 125e6);
  CHECK(s.seconds == 0.7);  // the shortest of the equal rows
  CHECK(s.is_check);
  CHECK(s.load == 2);
  const auto work = s.work_of(work_of_ten_layers());
  CHECK(work.batch == 13);
  CHECK(work.micro_batches == 3);
  CHECK(work.dist.reduction == "native");
  CHECK(work.dist.bucket_mib == 2);
  CHECK(steps[0].work_of(work_of_ten_layers()).batch == 16);
}

TEST_CASE("errors in a file name its line") {
  const std::string head = "ranks,link,strategy,seconds\n";
  CHECK(has(error_reading(""), "points.csv"));
  CHECK(has(error_reading(head), "no measured step"));
  CHECK(has(error_reading("ranks,link,strategy\n1,1GB/s,ddp\n"), "no column 'seconds'"));
  CHECK(has(error_reading("ranks,link,strategy,seconds,host\n1,1GB/s,ddp,1,a\n"), "'host'"));
  CHECK(has(error_reading(head + "2,1GB/s,ddp,1\n2,1GB,ddp,1\n"), "points.csv:3"));
  CHECK(has(error_reading(head + "2,1GB,ddp,1\n"), "'1GB' is not a bandwidth"));
  for (const char* row : {"0,1GB/s,ddp,1", "1.5,1GB/s,ddp,1", "1e9,1GB/s,ddp,1", "x,1GB/s,ddp,1", "2,1GB/s,ddp,0", "2,1GB/s,ddp,-1",
                          "2,1GB/s,ddp,nan", "2,1GB/s,,1", "2,1GB/s,ddp,"}) {
    CAPTURE(row);
    CHECK(has(error_reading(head + row + "\n"), "points.csv"));
  }
  CHECK(has(error_reading("ranks,link,strategy,seconds,use\n2,1GB/s,ddp,1,maybe\n"), "'maybe'; allowed: fit, check"));
  auto step = read("ranks,link,strategy,seconds,options\n2,1GB/s,ddp,1,model.name=x\n")[0];
  CHECK(has(error_of([&] { step.work_of(work_of_ten_layers()); }).what(), "dist.KEY=VALUE"));
  CHECK(has(error_of([&] { fit_rates(work_of_ten_layers(), read("ranks,link,strategy,seconds\n2,1GB/s,zero9,1\n")); }).what(), "zero9"));
  CHECK(has(error_of([&] { fit_rates(work_of_ten_layers(), read("ranks,link,strategy,seconds,use\n2,1GB/s,ddp,1,check\n")); }).what(),
            "no measured step to fit"));
}

TEST_CASE("rates are found again from steps with one and two ranks, and predict more ranks, other links and other strategies") {
  const StepRates truth{.flops = 4e10, .memory = 4e9, .link_share = 0.85, .message = 2e-4, .contention = 0.15, .carrying = 2e-9};
  const auto work = work_of_ten_layers();
  std::vector<MeasuredStep> steps;
  const auto add = [&](const std::string& strategy, int ranks, const std::string& link, const std::string& options, bool is_check) {
    MeasuredStep s{.placement = {.strategy = strategy, .ranks = ranks},
                   .link = link_of("test", link),
                   .link_text = link,
                   .options = options,
                   .load = 0.5 * ranks,
                   .is_check = is_check};
    s.seconds = step_time(s.work_of(work), s.placement, s.cluster(), truth).seconds;
    steps.push_back(s);
  };
  add("single", 1, "1Gbit/s", "", false);
  for (const char* link : {"20Mbit/s", "100Mbit/s", "1Gbit/s"})
    for (const char* options : {"", "dist.reduction=native"}) add("ddp", 2, link, options, false);
  add("zero1", 2, "100Mbit/s", "", false);
  add("ddp", 3, "100Mbit/s", "", false);
  add("ddp", 3, "1Gbit/s", "", false);
  const auto fitted = steps.size();
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"})
    for (const int ranks : {3, 4, 6}) add(strategy, ranks, "300Mbit/s", "", true);
  const StepRates start{.flops = 1e11, .memory = 5e9, .message = 1e-4, .contention = 0.2, .carrying = 1e-9};
  const auto fit = fit_rates(work, steps, start);
  CHECK_FALSE(fit.by_parts);
  CHECK(fit.largest_error() < 0.02);
  CHECK(fit.mean_error() <= fit.largest_error());
  for (size_t i = 0; i < steps.size(); ++i) {
    CAPTURE(fit.steps[i].step.name());
    CHECK(fit.steps[i].was_fitted == (i < fitted));
    CHECK(std::abs(fit.steps[i].error()) < 0.02);
  }
  CHECK(std::abs(fit.rates.link_share / truth.link_share - 1) < 0.05);

  for (auto& s : steps) s.is_check = false;
  const auto by_parts = fit_rates(work, steps, start);
  CHECK(by_parts.by_parts);
  CHECK(by_parts.largest_error() < 0.1);
  for (const auto& s : by_parts.steps) CHECK_FALSE(s.was_fitted);
  // A step that took twice as long as the others suggest is not predicted.
  steps[3].seconds *= 2;
  CHECK(std::abs(fit_rates(work, steps, start).steps[3].error()) > 0.3);
}

TEST_CASE("what was not measured is an extrapolation") {
  const auto steps = read("ranks,link,strategy,seconds\n1,1GB/s,single,1\n2,100Mbit/s,ddp,1\n4,1Gbit/s,zero1,1\n");
  const auto link = [](const char* text) { return link_of("test", text); };
  CHECK(beyond_measured(work_of_ten_layers(), steps, {.strategy = "ddp", .ranks = 4}, link("1Gbit/s")) == "");
  CHECK(beyond_measured(work_of_ten_layers(), steps, {.strategy = "ddp", .ranks = 3}, link("300Mbit/s")) == "");
  CHECK(beyond_measured(work_of_ten_layers(), steps, {.strategy = "ddp", .ranks = 8}, link("1Gbit/s")) == "more than 4 ranks");
  CHECK(beyond_measured(work_of_ten_layers(), steps, {.strategy = "zero3", .ranks = 8}, link("2Gbit/s")) ==
        "more than 4 ranks, a link above 125 MB/s, zero3");
  CHECK(beyond_measured(work_of_ten_layers(), steps, {.strategy = "ddp", .ranks = 2}, link("50Mbit/s")) == "a link below 12.5 MB/s");
  const Placement grouped{.strategy = "ddp", .ranks = 4, .group_size = 2};
  CHECK(beyond_measured(work_of_ten_layers(), steps, grouped, link("1Gbit/s")) == "groups of ranks");
  const auto with_groups = read("ranks,link,strategy,seconds,options\n4,1Gbit/s,ddp,1,dist.group_size=2\n");
  CHECK(beyond_measured(work_of_ten_layers(), with_groups, grouped, link("1Gbit/s")) == "");
}

TEST_CASE("a measured step has the groups of its options, else those of the configuration") {
  const auto steps = read(
      "ranks,link,strategy,seconds,options\n4,1GB/s,ddp,1,dist.group_size=2\n4,1GB/s,ddp,1,dist.bucket_mib=2\n"
      "1,1GB/s,single,1,\n4,1GB/s,ddp,1,dist.group_size=auto\n4,1GB/s,ddp,1,dist.group_size=99999\n");
  auto work = work_of_ten_layers();
  CHECK(steps[0].placement_of(work) == Placement{.strategy = "ddp", .ranks = 4, .group_size = 2});
  CHECK(steps[1].placement_of(work).group_size == 0);
  work.dist.group_size = "3";
  CHECK(steps[0].placement_of(work).group_size == 2);
  CHECK(steps[1].placement_of(work).group_size == 3);
  CHECK(steps[2].placement_of(work).group_size == 0);
  CHECK(steps[3].placement_of(work).group_size == 1);  // each rank has a machine of its own
  CHECK(steps[4].placement_of(work).group_size == 4);
  const auto wrong = read("ranks,link,strategy,seconds,options\n4,1GB/s,ddp,1,dist.group_size=two\n");
  CHECK(has(error_of([&] { fit_rates(work, wrong); }).what(), "dist.group_size] 'two'"));
}
