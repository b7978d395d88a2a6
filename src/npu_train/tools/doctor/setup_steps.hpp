/// The steps that prepare a machine for its Ascend NPUs, in their order: what is installed, what is missing, and the commands.
#pragma once

#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/doctor/host_view.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

struct SetupStep {
  enum class State {
    Done,
    Missing,
    TooOld,
    TooNew,   ///< torch_npu of a later version than libtorch
    Unknown,  ///< it cannot be seen on this machine
  };
  std::string name;  ///< "driver", "CANN"
  State state = State::Unknown;
  std::string found{};                  ///< what was found, with its version
  std::string needed{};                 ///< the version that is needed, or the reason for the step
  std::vector<std::string> commands{};  ///< in this order; empty if the step is done
};

/// "done", "missing", "too old", "too new", "unknown".
const char* setup_state_name(SetupStep::State state);

/// Returns the steps for this machine, from the NPU to the last check. Versions are those of versions.tsv for the torch_npu of this
/// libtorch; names of packages are those of the chip (ascend_chips.tsv). A part that is too old is installed in the reverse order: firmware
/// first. Executes nothing but npu-smi.
std::vector<SetupStep> setup_steps(const HostView& host, const ProcessFacts& process);

Report report_of(const std::vector<SetupStep>& steps);

}  // namespace npu_train
