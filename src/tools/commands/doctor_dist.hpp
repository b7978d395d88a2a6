// npu_tool doctor --dist: tests the collectives between ranks, which this command or a launcher has started.
#pragma once

#include <string>
#include <vector>

namespace npu_train::cli {

struct DistArguments {
  std::vector<int> nproc{1, 2, 4, 8};  // world sizes to test
  bool asked = false, nproc_given = false;
  double timeout = 30;  // seconds after which a collective fails
  bool json = false;
  std::string html;
  std::string folder;  // report folder of a rank that this command started
};

/// Returns the exit code. Call it from a single-threaded process, before a device is initialised.
int doctor_dist(const DistArguments& args);

}  // namespace npu_train::cli
