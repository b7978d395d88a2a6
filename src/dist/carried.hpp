// What compressed buckets carry from window to window, by parameter: independent of the buckets.
#pragma once

#include <vector>

#include "dist/bucket.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/options.hpp"

namespace npu_train::detail {

// In which fp32 gradients travel that no compressor takes.
at::ScalarType travel_dtype(const DistOptions& options);

// Slices, by name of the parameter: "rank/NAME", a row of [ranks, elements], the error of this rank; "sum/NAME", the error of the
// sum, in this rank's part. `ranks` are those that compress: with groups of ranks the first one of each. The slices of others
// are empty. Errors are in proportion to `scale`.
CarriedState carried_of(const std::vector<Bucket>& buckets, const ParameterSet& parameters, double scale);
// The same as load_carried() takes it, of this rank alone.
State own_state(const CarriedState& carried);
// Sets the errors from a state that any number of ranks saved, and returns their scale. Rank r of N takes over those of the ranks r, r + N,
// r + 2N, ...; sums of errors stay what they are. What a state does not have begins at zero.
double load_carried(std::vector<Bucket>& buckets, const ParameterSet& parameters, const State& saved);

}  // namespace npu_train::detail
