// npu_tool doctor --dist: the collectives between ranks, which this command starts itself, or which a launcher has started.
#pragma once

#include <string>
#include <vector>

namespace npu_train::cli {

struct DistArguments {
  std::vector<int> nproc{1, 2, 4, 8};  // numbers of ranks, each a world of its own
  bool asked = false, nproc_given = false;
  double timeout = 30;  // seconds that a collective waits
  bool json = false;
  std::string html;
  std::string folder;  // of a rank that this command started: what it reports
};

/// To be called before anything of a device is initialised, by a process of one thread. Returns the exit code.
int doctor_dist(const DistArguments& args);

}  // namespace npu_train::cli
