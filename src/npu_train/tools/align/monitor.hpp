/// The section `monitor` of a configuration: statistics of weights, activations, gradients and optimizer state in every N-th window.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"

namespace npu_train {

struct MonitorOptions {
  int64_t every = 10;                ///< N: records the first window, and every N-th one, which are the windows N - 1, 2N - 1 and so on
  std::vector<std::string> what{};   ///< any of weights, activations, gradients, optimizer; empty: all
  std::vector<std::string> where{};  ///< names or parts of names of parameters, states and layers, as in DumpOptions::list; empty: all
  double band = 10;                  ///< a gradient norm outside of its band differs from the median by at least this factor (NormBand)
  std::string dir{};                 ///< folder of monitor.csv; "": the run's folder; nothing is recorded if the run has no folder
  static const ConfigTable<MonitorOptions>& config_table();
};

/// Adds the section `monitor`. A run with this section appends rows to monitor.csv (MonitorRow), and appends norms to TensorBoard events in
/// the folder `monitor` next to that file. With several ranks, the main rank writes, and the statistics cover complete tensors and the
/// batches of all ranks; on CPUs, they are bit-equal to the statistics of one process. A resumed run continues the file at the window from
/// which it resumes; a file of another run is renamed.
///
/// Weights are recorded as the window computes with them, gradients after the reduction and before clipping, and the optimizer's state
/// after the update. An activation is the output of an operator with a parameter.
void add_monitor(Parts& parts);

}  // namespace npu_train
