// trainer.strategy=auto of several ranks: what they divide so that a training fits.
#pragma once

#include "npu_train/dist/options.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {

// Bytes that a rank has between steps if nothing is divided.
struct TrainingState {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;  // and averages of weights, and fp32 masters

  double all() const { return parameters + gradients + optimizer; }
  // Of one of `ranks` that divide.
  double divided(Sharding sharding, int ranks) const;
};

// Of `trained`, at most: for an optimizer with four slots for each parameter, which is more than any of this library has. `offloads`: the
// optimizer and averages are on the host, and not on the device.
TrainingState most_state_of(const ParameterSet& trained, const RunConfig& config, bool offloads = false);

// Of `trained`, with the configuration's optimizer, precision and averages. Optimizers are asked, by a step with parameters of the same
// names and at most eight elements a dimension.
TrainingState state_of(const ParameterSet& trained, const RunConfig& config, const Parts& parts, bool offloads = false);

// The least division whose state leaves half of `device_bytes` to activations, up to `most`. `frozen`: bytes of parameters that are not
// trained, of which each rank has all.
Sharding least_sharding(const TrainingState& state, double device_bytes, double frozen, int ranks, Sharding most);

// What a training of this configuration can divide. `has_blocks`: its model declares blocks. Of a task of the program it is not known
// whether it compares samples across ranks, so its parameters are not divided.
Sharding most_sharding(const RunConfig& config, const ParameterSet& trained, bool has_blocks, const Parts& parts);

}  // namespace npu_train
