// What compressed buckets carry from window to window.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/bucket.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/options.hpp"

namespace npu_train::detail {

// In which fp32 gradients travel that no compressor takes.
at::ScalarType travel_dtype(const DistOptions& options);

class CarriedErrors {
 public:
  // Compression begins when `start` steps have been taken.
  CarriedErrors(std::vector<Bucket>& buckets, const ParameterSet& parameters, int64_t start)
      : buckets_(buckets), parameters_(parameters), start_(start) {}

  // The sums of a window are here. Whether its step is taken says settle(), of which only the first call counts.
  void propose() { settled_ = false; }
  void settle(bool taken);

  // Of the losses of this window.
  void set_scale(double scale) { scale_ = scale; }
  // What one unit of the errors is in gradients of this window.
  double unit() const { return scale_ / errors_scale_; }

  // By parameter, so independent of buckets. Slices: "rank/NAME", a row of [ranks, elements], the error of this rank; "sum/NAME", the error
  // of the sum, in this rank's part. `ranks` are those that compress: with groups of ranks the first one of each. The slices of others are
  // empty.
  CarriedState state() const;
  // One that any number of ranks saved. Rank r of N takes over the errors of the ranks r, r + N, r + 2N, ...; sums of errors stay what they
  // are. What a state does not have begins at zero.
  void load(const State& saved);

 private:
  void compress_from_start();

  std::vector<Bucket>& buckets_;
  const ParameterSet& parameters_;
  int64_t start_, steps_ = 0;  // that were taken
  bool settled_ = true;
  double scale_ = 1, errors_scale_ = 1;  // of the losses of this window, and of those whose errors are carried
};

// A state as CarriedErrors::load() takes it, of this rank alone.
State own_state(const CarriedState& carried);

}  // namespace npu_train::detail
