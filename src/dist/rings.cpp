#include "npu_train/dist/rings.hpp"

#include <algorithm>
#include <map>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"

namespace npu_train::detail {
namespace {

constexpr int kRing = 4;

std::vector<int> every(int from, int end, int step) {
  std::vector<int> out;
  for (int r = from; r < end; r += step) out.push_back(r);
  return out;
}

// Divides all ranks into groups of `size` neighbours; the last group may be smaller. Returns the first of these groups that cannot be
// connected, or else the first ranks of all groups if these cannot be connected. Empty if all can be connected.
std::vector<int> not_connected(int ranks, int local, int size) {
  if (size <= 0 || size >= ranks) return {};
  for (int first = 0; first < ranks; first += size)
    if (auto group = every(first, std::min(first + size, ranks), 1); !rings_connect(group, local)) return group;
  auto firsts = every(0, ranks, size);
  return rings_connect(firsts, local) ? std::vector<int>() : firsts;
}

}  // namespace

bool rings_connect(const std::vector<int>& ranks, int local) {
  std::map<int, std::vector<int>> npus;  // by machine
  for (const int rank : ranks) npus[rank / local].push_back(rank % local);
  return std::all_of(npus.begin(), npus.end(), [&](const auto& machine) {
    const auto& own = machine.second;
    const auto count = own.size();
    const bool fits = count == 1 || count == 2 || count == kRing || count == 2 * kRing;
    const bool in_one_ring = std::all_of(own.begin(), own.end(), [&](int npu) { return npu / kRing == own[0] / kRing; });
    return fits && count == npus.begin()->second.size() && (count == 2 * kRing || in_one_ring);
  });
}

std::vector<int> not_in_rings(int ranks, int local, int shard_size, int group_size) {
  if (auto all = every(0, ranks, 1); !rings_connect(all, local)) return all;
  auto shards = not_connected(ranks, local, shard_size);
  return shards.empty() ? not_connected(ranks, local, group_size) : shards;
}

void check_rings(int ranks, int local, int shard_size, int group_size, const std::string& device) {
  const auto group = not_in_rings(ranks, local, shard_size, group_size);
  if (group.empty()) return;
  const bool all = static_cast<int>(group.size()) == ranks;
  const bool shards = !all && !not_in_rings(ranks, local, shard_size, 0).empty();
  std::vector<std::string> names;
  for (const int rank : group) names.push_back(std::to_string(rank));
  throw Error(ErrorKind::Usage,
              all      ? "trainer.devices"
              : shards ? "dist.shard_size"
                       : "dist.group_size",
              device + " connects 1, 2, 4 or 8 NPUs of a machine, equally many on each, and 2 or 4 only within 0-3 or 4-7; the ranks " +
                  first_few(names, 8) + ", " + std::to_string(local) + " on a machine, are not connected",
              all      ? "start 1, 2, 4 or 8 processes on each machine; with dist.backend=gloo any number, through host memory"
              : shards ? "dist.shard_size=auto divides among the ranks of a machine"
                       : "dist.group_size=auto adds among the ranks of a machine first");
}

}  // namespace npu_train::detail
