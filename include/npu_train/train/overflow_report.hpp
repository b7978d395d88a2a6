/// Explains an overflow: runs the window of the step again and inspects every operator.
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

/// An operator of the forward pass that uses a layer's parameter.
struct LayerRange {
  std::string layer;        ///< path of the module
  std::string op;           ///< "conv2d"
  double largest = 0;       ///< largest magnitude of its output as computed; inf if it overflowed, NaN if it is not a number
  double largest_fp32 = 0;  ///< largest magnitude if computed in fp32; -1 if that was not possible
  double gradient = 0;      ///< largest magnitude of the gradient of its output, scaled; -1 if no gradient arrived
};

/// Origin of the first value that is not finite.
struct OverflowSource {
  std::string phase;  ///< "forward", "loss", "backward", "unknown"
  std::string layer;  ///< path of the module; for an operator without parameters, the layer before it, as "after layer1.0.conv1"
  std::string op;     ///< "conv2d"; in a backward pass, the forward operator to which it belongs
  /// Returns a part of a sentence: "forward, conv2d of layer1.0.conv1".
  std::string str() const;
};

struct OverflowReport {
  int64_t attempt = 0;
  int64_t skip_streak = 0;
  std::string precision;
  double loss_scale = 1;
  double largest_of_dtype = 0;  ///< 65504 for fp16
  double loss = 0;              ///< unscaled loss of the micro-batch that overflowed
  int64_t micro_batch = 0;
  OverflowSource source;
  std::string broken_weight;            ///< parameter of the source that is itself not finite, because an earlier step broke it; "" if
                                        ///< there is none
  std::vector<LayerRange> layers;       ///< in forward order
  std::vector<std::string> parameters;  ///< parameters whose gradient is not finite
  int64_t parameters_in_all = 0;
  std::vector<int64_t> samples;  ///< indices in the data set of the samples that cause the overflow; empty if they are more than an eighth
                                 ///< of the batch
  std::vector<std::string> advice;

  /// Returns a page of text for a human reader.
  std::string str() const;
  Json json() const;
};

/// State from which a replay starts.
struct OverflowContext {
  const std::vector<Batch>* window = nullptr;
  RandomState random;                     ///< states of the generators before the window
  std::function<void()> restore_buffers;  ///< restores the buffers that the model had before the window; called after each forward
  int64_t attempt = 0;
  double full_weight = 0;  ///< before its backward, each loss was multiplied by weight / full_weight; 0: the losses were not multiplied
  std::function<int64_t(int64_t k)> micro_batch_number{};  ///< Ranks::micro_batch_number(); empty: k itself
};

/// Runs the window's forward and backward again and inspects each operator. Changes no state: generators, buffers, parameters and gradients
/// are as before. Does not communicate, so each rank may call it alone.
OverflowReport explain_overflow(Task& task, Precision& precision, const OverflowContext& context);

/// Writes overflow_report.txt and overflow_report.json to `folder`. Error(Checkpoint) if that fails.
void write_overflow_report(const OverflowReport& report, const std::string& folder);

}  // namespace npu_train
