#include "testing.hpp"

#include "tools/align/planted_faults.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Describes the plan and the result for a failed check.
std::string told(const FaultPlan& plan, const DumpComparison& result) {
  return std::string(plan.network) + ", " + (plan.kind ? name_of(*plan.kind) : "no fault") + " at " + plan.parameter + ", noise " +
         name_of(plan.noise) + ": " + (result.first.found ? result.first.sentence : "nothing found");
}

}  // namespace

// benchmarks/planted_faults.cpp is the complete experiment.
TEST_CASE("an error planted anywhere in ResNet-50 or ViT-tiny is found at its layer") {
  const TempDir dir;
  constexpr uint64_t kSeed = 3;
  int right = 0, drawn = 0, of_values = 0, right_in_values = 0, right_in_sample = 0;
  for (uint64_t i = 0; drawn < 8; ++i, ++drawn) {
    const auto plan = draw_fault(kSeed, i);
    const bool values = i % 4 < 2;
    const auto result = compare_runs(plan, dir.path(), values ? "tensor" : "statistics");
    const bool found = is_right(plan, result.first);
    if (values) {
      const auto sample = compare_dumps(dir.path() / "a", dir.path() / "b", {.sample_elements = 0.1, .seed = static_cast<int64_t>(i)});
      ++of_values, right_in_values += found, right_in_sample += is_right(plan, sample.first);
    }
    right += found;
    if (!found) MESSAGE(told(plan, result));
  }
  CHECK(right >= 7);
  CHECK(of_values == 4);
  CHECK(right_in_sample == right_in_values);
}

TEST_CASE("runs without an error raise no alarm") {
  const TempDir dir;
  FaultPlan plans[] = {{.network = "resnet50_fused", .seed = 5, .steps = 2},
                       {.network = "vit_tiny", .seed = 6, .noise = Noise::NativeKernels, .steps = 2},
                       {.network = "vit_tiny", .seed = 7, .noise = Noise::Threads, .steps = 2},
                       {.network = "resnet50", .seed = 8, .noise = Noise::NativeKernels},
                       {.network = "resnet50", .seed = 9, .noise = Noise::Fused}};
  for (const auto& plan : plans) {
    // The equal runs are compared by their statistics, which are only a thousandth of the data and are equal too.
    const auto result = compare_runs(plan, dir.path(), plan.network == "resnet50_fused" ? "statistics" : "tensor");
    CAPTURE(told(plan, result));
    CHECK(is_quiet(plan, result));
    const auto sample = compare_dumps(dir.path() / "a", dir.path() / "b", {.sample_elements = 0.1, .seed = 1});
    CAPTURE(told(plan, sample));
    CHECK(is_quiet(plan, sample));
    // a given rtol is applied literally
    CHECK(compare_dumps(dir.path() / "a", dir.path() / "b", {.rtol = 1e-3}).agrees == (plan.network != "resnet50"));
  }
}

TEST_CASE("an error that was not planted is an error of the experiment") {
  FaultPlan plan{.network = "resnet50_fused", .seed = 1, .kind = FaultKind::Eps, .parameter = "bn1.weight", .layer = "bn1"};
  const TempDir dir;
  CHECK(has(error_of([&] { compare_runs(plan, dir.path(), "statistics"); }).what(), "0 calls"));
}
