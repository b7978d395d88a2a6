// The process that serves the store of one generation of ranks. It outlives each of them, unless one has failed.
#pragma once

#include <sys/types.h>

#include <optional>

#include "tools/launch/signals.hpp"
#include "tools/launch/verdict.hpp"

namespace npu_train {

class StoreProcess {
 public:
  /// Binds a free port of the loopback interface and starts the process. Error(Device) if the system provides none.
  explicit StoreProcess(const SignalWait& signals);
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  int port() const { return port_; }
  /// Ends the process: ranks that wait in the store get an error.
  void end();
  /// Returns how the process ended by itself, once; nullopt if it still runs.
  std::optional<RankEnd> ended();

 private:
  int port_ = 0;
  pid_t child_ = 0;
};

}  // namespace npu_train
