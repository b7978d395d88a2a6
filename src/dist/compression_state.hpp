// Error feedback of compressed buckets, carried from window to window.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/bucket.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/options.hpp"

namespace npu_train::detail {

// Returns the dtype in which fp32 gradients without a compressor are sent.
at::ScalarType travel_dtype(const DistOptions& options);

class BucketErrors {
 public:
  // `start`: number of taken steps before compression begins.
  BucketErrors(std::vector<Bucket>& buckets, const ParameterSet& parameters, int64_t start)
      : buckets_(buckets), parameters_(parameters), start_(start) {}

  // propose() is called when the sums of a window have arrived. The first settle() after it decides whether the step counts as taken.
  void propose() { settled_ = false; }
  void settle(bool taken);

  // Sets the scale of this window's losses.
  void set_scale(double scale) { scale_ = scale; }
  // Returns the factor that converts the scale of the errors to that of this window's gradients.
  double unit() const { return scale_ / errors_scale_; }

  // Returns the state by parameter, independent of buckets. The slice "rank/NAME" is the error of this rank, a row of [ranks, elements].
  // The slice "sum/NAME" is the error of the sum, in this rank's part. `ranks` is the number of ranks that compress; with groups, these are
  // the first ranks of the groups, and the slices of all other ranks are empty.
  CompressionState state() const;
  // Loads a state that any number of ranks saved. Rank r of N takes over the errors of the ranks r, r + N, r + 2N, ...; errors of sums are
  // taken unchanged. Values that the state does not have begin at zero.
  void load(const State& saved);

 private:
  void compress_from_start();

  std::vector<Bucket>& buckets_;
  const ParameterSet& parameters_;
  int64_t start_, steps_ = 0;  // steps_: number of taken steps
  bool settled_ = true;
  double scale_ = 1, errors_scale_ = 1;  // scales of the losses: of this window, and of the window that made the errors
};

// Returns the state of this rank alone, for BucketErrors::load().
State own_state(const CompressionState& state);

}  // namespace npu_train::detail
