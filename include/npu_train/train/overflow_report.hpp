/// Why a step overflowed: the window is run once more with every operator watched.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

/// One operator of the forward that uses a layer's parameter.
struct LayerRange {
  std::string layer;        ///< path of the module
  std::string op;           ///< "conv2d"
  double largest = 0;       ///< magnitude of its output as it was computed; inf if it overflowed, NaN if it is not a number
  double largest_fp32 = 0;  ///< the same computed in fp32; -1 where that was not possible
  double gradient = 0;      ///< largest magnitude of its output's gradient, scaled; -1 where no gradient arrived
};

/// Where the first value that is not finite came from.
struct OverflowSource {
  std::string phase;  ///< "forward", "loss", "backward", "unknown"
  std::string layer;  ///< path of the module; for an operator without parameters the one before it, as "after layer1.0.conv1"
  std::string op;     ///< "conv2d"; of a backward: the forward operator whose backward it was
  /// A part of a sentence: "forward, conv2d of layer1.0.conv1".
  std::string str() const;
};

struct OverflowReport {
  int64_t attempt = 0;
  int64_t skip_streak = 0;
  std::string precision;
  double loss_scale = 1;
  double largest_of_dtype = 0;  ///< 65504 for fp16
  double loss = 0;              ///< of the micro-batch that overflowed, unscaled
  int64_t micro_batch = 0;
  OverflowSource source;
  std::string broken_weight;            ///< the parameter of the source that is itself not finite: an earlier step broke it; else empty
  std::vector<LayerRange> layers;       ///< in forward order
  std::vector<std::string> parameters;  ///< those whose gradient is not finite
  int64_t parameters_in_all = 0;
  std::vector<int64_t> samples;  ///< the data set's indices of the samples that cause it, unless most of them do
  std::vector<std::string> advice;

  /// A page for people.
  std::string str() const;
  Json json() const;
};

/// What a replay starts from.
struct OverflowContext {
  const std::vector<Batch>* window = nullptr;
  RandomState random;                     ///< the states of the generators before the window
  std::function<void()> restore_buffers;  ///< puts the model's buffers back to before the window; called after each forward
  int64_t attempt = 0;
  double full_weight = 0;  ///< losses were multiplied by weight / full_weight before their backward; 0: they were not
  std::function<int64_t(int64_t k)> micro_batch_number{};  ///< as Strategy::micro_batch_number; empty: k itself
};

/// Runs the window's forward and backward again and inspects each operator. It changes no state: random numbers, buffers and parameters
/// stay, gradients are restored. It does not communicate, so each rank may call it alone.
OverflowReport explain_overflow(Task& task, Precision& precision, const OverflowContext& context);

/// Writes overflow_report.txt and overflow_report.json to `folder`. Error(Checkpoint) when that fails.
void write_overflow_report(const OverflowReport& report, const std::string& folder);

}  // namespace npu_train
