/// Tests the collectives between the ranks of a run: whether they work, with which dtypes, and how fast. Every result is compared with the
/// expected values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/dist/process_group.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// One collective with one dtype.
struct CollectiveCheck {
  std::string collective;  ///< "all_to_all", "all_reduce", "all_gather", "broadcast", "gather" (of texts)
  std::string dtype;       ///< "fp32", "int8"; "text"
  std::string problem;     ///< "" if every rank received the right values; otherwise the first rank that failed, and its problem
};

/// The time of one collective.
struct CollectiveSpeed {
  std::string collective;
  int64_t bytes = 0;   ///< size of its largest tensor on a rank, before rounding to a multiple of the number of ranks
  double seconds = 0;  ///< median of several calls, on the slowest rank
};

/// The results for one world size, equal on all ranks.
struct DistProbe {
  int ranks = 1;
  std::string failure{};  ///< the reason why the ranks did not finish, with the failed rank; "" if they did
  std::vector<CollectiveCheck> checks{};
  std::vector<CollectiveSpeed> speeds{};  ///< empty for one rank, which sends no data

  bool ok() const;
};

/// Calls every collective of `group` that training uses. Every rank must call this function. `progress` receives the name of each part
/// before it begins. A collective that refuses a dtype or returns wrong values results in a check with a problem; Error(Peer) if a rank is
/// lost.
DistProbe probe_collectives(ProcessGroup& group, const std::function<void(const std::string& part)>& progress = {});

/// Returns {ranks, failure, collectives: [{collective, dtype, ok, problem}], speeds: [{collective, bytes, us, mb_per_s}]}.
Json to_json(const DistProbe& probe);
/// Reads the document of to_json(). Error(Data) names `source`.
DistProbe dist_probe_from(const Json& json, const std::string& source);

/// Returns a finding for each world size (area "collectives").
std::vector<Finding> judge_collectives(const std::vector<DistProbe>& worlds);
/// Adds a table of the world sizes at which each collective works with each dtype, a table of speeds, and to_json() of `worlds` as
/// "worlds".
void add_collectives(Report& out, const std::vector<DistProbe>& worlds);

}  // namespace npu_train
