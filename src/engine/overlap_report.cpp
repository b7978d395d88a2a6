#include "engine/overlap_report.hpp"

#include <cmath>

#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/dist/reduction_times.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {

void OverlapReport::on_fit_start(TrainLoop& /*loop*/) { *this = OverlapReport(); }

void OverlapReport::on_step_end(TrainLoop& loop, const StepReport& /*report*/) {
  const auto times = loop.parts().strategy->reduction_times();
  if (times.end == end_) return;  // reports come one step late, so at the end of an epoch the last window may appear twice
  end_ = times.end;
  windows_ += 1;
  communication_ += times.communication();
  hidden_ += times.communication(times.backward);
  bytes_ += static_cast<double>(times.bytes());
  between_ += static_cast<double>(times.between_bytes());
}

void OverlapReport::on_fit_end(TrainLoop& loop, const RunResult& /*result*/) {
  auto& strategy = *loop.parts().strategy;
  const auto all = strategy.ranks().sums({windows_, communication_, hidden_, bytes_, between_});
  if (!strategy.ranks().is_main()) return;
  if (all[1] <= 0) {
    log_info("communication: no times are known, so its overlap with backward passes is not either");
    return;
  }
  const double share = all[2] / all[1];
  const auto percent = [](double x) { return std::to_string(std::lround(100 * x)) + " %"; };
  log_info("communication: ", percent(share), " of its time was hidden behind backward passes, the target is ", percent(kTarget), ": ",
           share >= kTarget ? "reached" : "not reached", "; a rank sends ", human_bytes(all[3] / all[0]), " in a window, ",
           human_bytes(all[4] / all[0]), " of them to other groups");
}

}  // namespace npu_train
