/// Compares the ranks of one run with each other, by the dumps that they wrote.
///
///   must have equal bits: weights before and after a step, reduced and clipped gradients, clip factor, learning rate, loss scale
///   must be right:        sums over ranks of known values; the sum of a reduced gradient's elements is that of all ranks' own gradients
///   must be alike:        mean and standard deviation of the inputs, loss, norm of a rank's own gradients (see RankLimits)
///   may differ:           inputs, activations, losses and gradients of single micro-batches, running statistics
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// Limits for values that need only be similar. A rank differs if its mean differs from that of the other ranks both by more than `errors`
/// standard errors (times 1 + 8 / degrees of freedom) and by more than the fraction `input`, `loss` or `gradient`.
struct RankLimits {
  double errors = 6;
  double input = 0.1;     ///< relative to the standard deviation of a sample
  double loss = 0.05;     ///< relative to the mean loss
  double gradient = 0.5;  ///< relative to the norm of a rank's own gradients
};

/// A difference between ranks. `kind` is one of these, each of which may cause those after it: "weights before the step", "random numbers",
/// "data", "loss", "gradient norm", "all-reduce", "reduced gradient", "clip factor", "schedule", "weights after the step".
struct RankFault {
  int64_t step = 0;
  int rank = 0;
  std::string kind;
  std::string layer{};     ///< layer of the first parameter that differs; "" if no layer is involved
  std::string text;        ///< one sentence
  std::string advice;      ///< the recommended action
  int64_t more_steps = 0;  ///< later steps with the same kind of fault
};

/// Summary of one rank over all steps.
struct RankSummary {
  int rank = 0;
  std::string host;
  int64_t samples = 0;
  double input_mean = 0, input_std = 0;  ///< means over the samples; NaN without inputs
  std::map<int64_t, double> loss{};      ///< by step: mean over its micro-batches
  std::map<int64_t, double> gradient{};  ///< by step: norm of its own gradients
};

struct RankComparison {
  std::string path;
  std::vector<int64_t> steps{};
  std::vector<RankSummary> ranks{};
  std::vector<RankFault> faults{};  ///< the ranks begin to differ at the first one
  std::vector<std::string> notes{};
  RankLimits limits{};
  bool complete = true;  ///< every rank has every step
  bool agrees() const { return faults.empty(); }
};

/// Compares the ranks in the dump at `path`, a folder that several ranks wrote (stepN/rankR/rank.json). `steps`: only these; empty: all.
/// Error(Data) if there are fewer than two ranks, a file cannot be read, or the ranks have no step in common.
RankComparison compare_ranks(const std::filesystem::path& path, const std::vector<int64_t>& steps = {}, const RankLimits& limits = {});

/// Reports the verdict, the faults with advice, the ranks, and their losses.
Report report_of(const RankComparison& comparison);

}  // namespace npu_train
