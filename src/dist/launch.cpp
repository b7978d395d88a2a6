#include "npu_train/dist/launch.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

/// 0 if the variable is not set or is not a number above 0.
int64_t count_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return 0;
  const std::string_view text(value);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? number : 0;
}

}  // namespace

Launch launch_of_environment() {
  if (const auto processes = count_in("WORLD_SIZE"); processes > 0) return {processes, "WORLD_SIZE"};
  if (std::getenv("SLURM_STEP_ID") == nullptr || std::getenv("SLURM_PROCID") == nullptr) return {};
  for (const char* variable : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
    if (const auto processes = count_in(variable); processes > 0) return {processes, variable};
  return {};
}

void check_single_process(const char* where) {
  const auto [processes, variable] = launch_of_environment();
  if (processes == 1) return;
  const bool slurm = variable != "WORLD_SIZE";
  throw Error(ErrorKind::Usage, where,
              variable + " is " + std::to_string(processes) +
                  ", but this version trains in one process: each of them would train on all of the data by itself; allowed: 1",
              slurm ? "start one task (srun --ntasks=1), or, for trainings that have nothing to do with each other, unset SLURM_STEP_ID "
                      "(env -u SLURM_STEP_ID ...)"
                    : "start one process (torchrun --nproc-per-node=1), or, for trainings that have nothing to do with each other, unset "
                      "WORLD_SIZE (env -u WORLD_SIZE ...)");
}

}  // namespace npu_train
