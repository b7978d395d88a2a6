/// How this process was launched: alone, or as one of several that train together.
#pragma once

#include <cstdint>
#include <string>

namespace npu_train {

/// What a launcher says in the environment.
struct Launch {
  int64_t processes = 1;   ///< of the launch that this process belongs to
  std::string variable{};  ///< the variable that states this; "" if none does
};

/// WORLD_SIZE (torchrun and most others); or, inside a step of Slurm (SLURM_STEP_ID and SLURM_PROCID are set), SLURM_STEP_NUM_TASKS or
/// SLURM_NTASKS. An allocation of Slurm alone does not describe this process: its variables do not count. A value that is not a
/// number above 0 does not count either.
Launch launch_of_environment();

/// Error(Usage) that names the variable where the launch has more than one process: each would train on all of the data by itself, and all
/// would write to one folder.
void check_single_process(const char* where);

}  // namespace npu_train
