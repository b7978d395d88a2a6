/// The environment that several ranks need to find each other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/finding.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// What a process knows about its network.
struct NetworkFacts {
  std::string host;                                ///< name of this machine
  std::string address;                             ///< to which the name resolves; "" if it does not
  std::string launch;                              ///< "started alone", "rank 1 of 4, started by torchrun"
  std::string launch_problem{};                    ///< contradictory variables of a launcher
  std::map<std::string, std::string> variables{};  ///< those that are set and begin with GLOO_, HCCL_ or NCCL_
  int processors = 1;                              ///< for this process
};

/// Of this process.
NetworkFacts network_facts();

/// Area "dist": variables of a launcher, loopback interface, name of the host, network card for Gloo, variables without an effect,
/// processors for `most_ranks` ranks.
std::vector<Finding> check_dist_environment(const HostView& host, const NetworkFacts& facts, int most_ranks);

}  // namespace npu_train
