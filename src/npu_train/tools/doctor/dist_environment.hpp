/// The environment that ranks need to find each other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// Facts about the network, as a process sees it.
struct NetworkFacts {
  std::string host;                                ///< name of this machine
  std::string address;                             ///< address to which the host name resolves; "" if it does not
  std::string launch;                              ///< "started alone", "rank 1 of 4, started by torchrun"
  std::string launch_problem{};                    ///< contradictory variables of a launcher; "": none
  std::map<std::string, std::string> variables{};  ///< set variables that begin with GLOO_, HCCL_ or NCCL_
  int processors = 1;                              ///< processors that this process may use
};

/// Returns the facts of this process.
NetworkFacts network_facts();

/// Checks area "dist": variables of a launcher, loopback interface, host name, network card for Gloo, and variables without an effect.
/// `ranks`: numbers of ranks that are to run on this machine. The largest one needs as many processors; on a machine with NPUs, HCCL must
/// connect each number of ranks.
std::vector<Finding> check_dist_environment(const HostView& host, const NetworkFacts& facts, const std::vector<int>& ranks);

}  // namespace npu_train
