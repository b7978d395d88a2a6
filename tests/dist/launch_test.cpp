#include "testing.hpp"

#include "environment_variable.hpp"
#include "npu_train/dist/launch.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a process of its own") {
  for (const char* variable : {"WORLD_SIZE", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"})
    REQUIRE(std::getenv(variable) == nullptr);
  CHECK(launch_of_environment().processes == 1);
  CHECK_NOTHROW(check_single_process("test"));
  for (const char* value : {"1", "0", "-2", "", "two", "2x"}) {
    const EnvironmentVariable world("WORLD_SIZE", value);
    CHECK(launch_of_environment().processes == 1);
    CHECK_NOTHROW(check_single_process("test"));
  }
}

TEST_CASE("WORLD_SIZE says how many processes train") {
  const EnvironmentVariable world("WORLD_SIZE", "16");
  CHECK(launch_of_environment().processes == 16);
  CHECK(launch_of_environment().variable == "WORLD_SIZE");
  CHECK(error_of([] { check_single_process("test"); }).kind() == ErrorKind::Usage);
}

TEST_CASE("an allocation of Slurm is no step") {
  const EnvironmentVariable tasks("SLURM_NTASKS", "4");
  CHECK(launch_of_environment().processes == 1);  // in the script of sbatch or the shell of salloc
  const EnvironmentVariable process("SLURM_PROCID", "0");
  CHECK(launch_of_environment().processes == 1);
  const EnvironmentVariable step("SLURM_STEP_ID", "0");
  CHECK(launch_of_environment().processes == 4);
  CHECK(launch_of_environment().variable == "SLURM_NTASKS");
  const EnvironmentVariable one("SLURM_STEP_NUM_TASKS", "1");  // of the step itself
  CHECK(launch_of_environment().processes == 1);
  const EnvironmentVariable world("WORLD_SIZE", "2");
  CHECK(launch_of_environment().variable == "WORLD_SIZE");
}
