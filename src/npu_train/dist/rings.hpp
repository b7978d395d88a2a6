/// Servers of Ascend's first generation (910A), whose NPUs are two rings of four. HCCL connects 1, 2, 4 or 8 of the NPUs of a machine,
/// equally many on each machine, and 2 or 4 only within one ring (the documents of CANN 8.5: limits of create_group).
#pragma once

#include <string>
#include <vector>

namespace npu_train::detail {

/// Base class of groups whose ranks are simulated in one process: they are on no machine, so any number of them is connected.
struct SimulatedRanks {
  virtual ~SimulatedRanks() = default;
};

/// Returns whether such servers connect these ranks. The ranks of a machine are `local` neighbours, of which the k-th has NPU k.
bool rings_connect(const std::vector<int>& ranks, int local);

/// Returns the first group that they do not connect among all `ranks`, the shards of `shard_size` neighbours with their replicas, and the
/// groups of `group_size` neighbours with their first ranks; empty if they connect all of them.
std::vector<int> not_in_rings(int ranks, int local, int shard_size, int group_size);

/// Throws Error(Usage) for a run with a group that they do not connect. `device`: its name in the message.
void check_rings(int ranks, int local, int shard_size, int group_size, const std::string& device);

}  // namespace npu_train::detail
