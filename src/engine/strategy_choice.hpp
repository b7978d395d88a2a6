// Implements trainer.strategy=auto: decides what several ranks shard so that a training fits into memory.
#pragma once

#include "npu_train/dist/options.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {

// Bytes that a rank needs between steps, without sharding.
struct TrainingState {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;  // including averages of weights and fp32 masters

  double all() const { return parameters + gradients + optimizer; }
  // Returns the bytes of each of `ranks` ranks with this sharding.
  double divided(Sharding sharding, int ranks) const;
};

// Returns an upper bound for the state of `trained`: assumes an optimizer with four slots per parameter, more than any in this library.
// `offloads`: the optimizer and averages are on the host instead of the device.
TrainingState most_state_of(const ParameterSet& trained, const RunConfig& config, bool offloads = false);

// Returns the state for `trained` with the configuration's optimizer, precision and averages. Measures the optimizer in a step with small
// parameters: the same names, at most eight elements per dimension.
TrainingState state_of(const ParameterSet& trained, const RunConfig& config, const Parts& parts, bool offloads = false);

// Returns the least sharding, up to `most`, whose state leaves half of `device_bytes` for activations. `frozen`: bytes of parameters that
// are not trained, which each rank has completely.
Sharding least_sharding(const TrainingState& state, double device_bytes, double frozen, int ranks, Sharding most);

// Returns the largest sharding that this configuration allows, up to `most`: Gradients if the model declares no blocks, None for a task of
// several optimizers. Parameters are not sharded for a program's own tasks, because these might compare samples across ranks.
Sharding most_sharding(const RunConfig& config, const ParameterSet& trained, Sharding most, const Parts& parts);

}  // namespace npu_train
