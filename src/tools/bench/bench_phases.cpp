#include "bench_phases.hpp"

#include <algorithm>

namespace npu_train::detail {

BenchRow phase_row(const std::string& of, const Profile& profile) {
  BenchRow row{.section = "phases", .name = of + (profile.synchronised ? ", the device waited for after each" : "")};
  if (profile.windows == 0 || !(profile.seconds > 0)) {
    row.failure = "too few steps for a result";
    return row;
  }
  row.numbers = {{"steps", static_cast<double>(profile.windows)},
                 {"step_ms_mean", 1e3 * profile.seconds / static_cast<double>(profile.windows)}};
  auto phases = profile.phases;
  std::sort(phases.begin(), phases.end(), [](const PhaseTime& a, const PhaseTime& b) { return a.phase < b.phase; });
  for (const auto& p : phases) row.numbers.emplace_back(std::string("share_of_") + phase_name(p.phase), p.seconds / profile.seconds);
  row.numbers.emplace_back("share_of_rest", profile.between() / profile.seconds);
  return row;
}

}  // namespace npu_train::detail
