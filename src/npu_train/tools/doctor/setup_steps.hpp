/// The steps that prepare a machine for its Ascend NPUs, in order: the installed software, the missing software, and the commands.
#pragma once

#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

struct SetupStep {
  enum class State {
    Done,
    Missing,
    TooOld,
    TooNew,   ///< torch_npu of a later version than libtorch
    Unknown,  ///< cannot be determined on this machine
  };
  std::string name;  ///< "driver", "CANN"
  State state = State::Unknown;
  std::string found{};                  ///< the installed software, with its version
  std::string needed{};                 ///< the required version, or the reason for the step
  std::vector<std::string> commands{};  ///< commands in order; empty if the step is done
};

/// Returns "done", "missing", "too old", "too new" or "unknown".
const char* setup_state_name(SetupStep::State state);

/// Returns the steps for this machine, from the NPU to the last check. versions.tsv gives the versions for the torch_npu of this libtorch,
/// and ascend_chips.tsv the names of the packages for the chip. If the driver is too old, the firmware is replaced before the driver, in
/// the reverse order of an installation. Runs no program except npu-smi.
std::vector<SetupStep> setup_steps(const HostView& host, const ProcessFacts& process);

Report report_of(const std::vector<SetupStep>& steps);

}  // namespace npu_train
