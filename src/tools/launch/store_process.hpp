// The process that serves the store of one generation of ranks. It outlives all ranks, unless a rank has failed.
#pragma once

#include <sys/types.h>

#include <optional>

#include "tools/launch/signals.hpp"
#include "tools/launch/verdict.hpp"

namespace npu_train {

class StoreProcess {
 public:
  /// Binds a free port of the loopback interface and starts the process. Error(Device) if the system provides no port or no process.
  explicit StoreProcess(const SignalWait& signals);
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  int port() const { return port_; }
  /// Ends the process. Ranks that wait for the store get an error.
  void end();
  /// Returns, only once, how the process has ended by itself; otherwise nullopt.
  std::optional<RankEnd> ended();

 private:
  int port_ = 0;
  pid_t child_ = 0;
};

}  // namespace npu_train
