// The states of all ranks' random number generators in one State: those of rank 0 under their own names, those of rank R under "rank<R>/".
#pragma once

#include "npu_train/base/state.hpp"
#include "npu_train/dist/ranks.hpp"

namespace npu_train::detail {

// Returns the states of all ranks on the main rank, and those of this rank on the others. Every rank must call it.
State generators_of_ranks(Ranks& ranks);

// Sets the generators of this rank. If another number of ranks saved them, rank 0 continues with its own state, and the others keep their
// seeds, because a rank must not draw the numbers of another one. Error(Checkpoint) as for set_rng_state().
void set_generators_of_rank(const Ranks& ranks, const State& saved);

}  // namespace npu_train::detail
