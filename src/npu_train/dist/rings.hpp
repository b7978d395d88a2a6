/// Limits of HCCL on servers of Ascend's first generation (910A), whose NPUs form two rings of four. A group has 1, 2, 4 or 8 NPUs of a
/// machine, the same number on each machine; 2 or 4 NPUs must be in one ring (the documents of CANN 8.5: limits of create_group).
#pragma once

#include <string>
#include <vector>

namespace npu_train::detail {

/// Base class of groups whose ranks are simulated in one process. These ranks are on no machine, so the limits do not apply.
struct SimulatedRanks {
  virtual ~SimulatedRanks() = default;
};

/// Returns whether HCCL can connect `ranks` on such servers. Each machine has `local` consecutive ranks; its k-th rank uses NPU k.
bool rings_connect(const std::vector<int>& ranks, int local);

/// Returns the first group of a run that HCCL cannot connect, or an empty list if it can connect all. The groups are: all `ranks`; each
/// `shard_size` consecutive ranks, which divide the shards, and the replicas of a shard; each `group_size` consecutive ranks, and the first
/// ranks of these groups.
std::vector<int> not_in_rings(int ranks, int local, int shard_size, int group_size);

/// Throws Error(Usage) if HCCL cannot connect a group of the run. `device`: name of the device, for the message.
void check_rings(int ranks, int local, int shard_size, int group_size, const std::string& device);

}  // namespace npu_train::detail
