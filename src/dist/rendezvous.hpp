// Rendezvous of the processes of a launch: a store, through which Gloo connects each process with all others.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>

#include "dist/c10d_collective.hpp"
#include "dist/duplex_gloo.hpp"
#include "npu_train/core/launch.hpp"

namespace npu_train::detail {

using Gloo = c10::intrusive_ptr<DuplexGloo>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// A process that joins a group. No wait lasts longer than `timeout`, or continues after `stopped` has returned true.
struct Rendezvous {
  Launch launch{};  // in a subgroup, rank and world_size are those in the subgroup
  bool on_one_host = false;
  std::shared_ptr<C10dShared> shared{};
  std::chrono::milliseconds timeout{};
  std::function<bool()> stopped{};  // empty: never
};

// The connections of a group.
struct Connections {
  StorePtr store{};
  Gloo exchanges{}, gathers{}, agreements{};  // one for each sequence of collectives
};

// Connects all ranks of the launch. Processes may make several groups, in the same order on each rank.
Connections meet(const Rendezvous& rendezvous);
// Connects the ranks that share `store`; launch.rank and launch.world_size are relative to these ranks.
Connections connect(const Rendezvous& rendezvous, const StorePtr& store);

}  // namespace npu_train::detail
