// How the processes of a launch find each other: by a store, through which Gloo connects each of them with all others.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>

#include "dist/c10d_collective.hpp"
#include "dist/duplex_gloo.hpp"
#include "npu_train/dist/launch.hpp"

namespace npu_train::detail {

using Gloo = c10::intrusive_ptr<DuplexGloo>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// A process on its way into a group. Nothing waits longer than `timeout`, or when `stopped` has become true.
struct Rendezvous {
  Launch launch{};  // of a part of its ranks too, which it counts then
  bool on_one_host = false;
  std::shared_ptr<C10dShared> shared{};
  std::chrono::milliseconds timeout{};
  std::function<bool()> stopped{};  // empty: never
};

// What a group is made of.
struct Connections {
  StorePtr store{};
  Gloo exchanges{}, gathers{}, agreements{};  // one for each sequence of collectives
};

// Connects all ranks of the launch. Processes may make several groups, in the same order on each rank.
Connections meet(const Rendezvous& rendezvous);
// Connects the ranks that share `store`: launch.rank and launch.world_size count them.
Connections connect(const Rendezvous& rendezvous, const StorePtr& store);

}  // namespace npu_train::detail
