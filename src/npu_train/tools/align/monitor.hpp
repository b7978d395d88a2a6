/// The section `monitor` of a configuration: statistics of weights, activations, gradients and optimizer state in every N-th window.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"

namespace npu_train {

struct MonitorOptions {
  int64_t every = 10;                ///< records window 0 and each whose number from 1 is a multiple of this
  std::vector<std::string> what{};   ///< words of weights, activations, gradients, optimizer; empty: all
  std::vector<std::string> where{};  ///< names or parts of names of parameters, states and layers, as in DumpOptions::list; empty: all
  double band = 10;                  ///< the least factor by which a gradient norm must differ from its median to leave its band (NormBand)
  std::string dir{};                 ///< folder of monitor.csv; "": the run's folder; nothing is recorded if it has none
  static const ConfigTable<MonitorOptions>& config_table();
};

/// Adds the section `monitor`. A run with this section appends rows to monitor.csv (MonitorRow), and norms to TensorBoard events in a
/// folder `monitor` next to it. Of several ranks the main one writes, and the statistics are those of complete tensors and of the batches
/// of all ranks: on CPUs, their bits are those of one process. A resumed run continues the file at its position; a file of
/// another run is renamed.
///
/// Weights are those with which the window computes, gradients those after the reduction and before clipping, and the optimizer's state is
/// that after the update. An activation is the output of an operator with a parameter.
void add_monitor(Parts& parts);

}  // namespace npu_train
