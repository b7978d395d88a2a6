// The generators of all ranks in one state: those of rank 0 under their own names, those of rank R under "rank<R>/".
#pragma once

#include "npu_train/base/state.hpp"
#include "npu_train/dist/strategy.hpp"

namespace npu_train::detail {

// Every rank calls it. The main rank gets those of all, the others their own.
State generators_of_ranks(Strategy& strategy);

// Sets those of this rank. Where another number of ranks saved them, rank 0 continues with its own and the others keep what they were
// seeded with: the numbers of one rank must not be drawn on another one too. Error(Checkpoint) as set_rng_state().
void set_generators_of_rank(const Strategy& strategy, const State& saved);

}  // namespace npu_train::detail
