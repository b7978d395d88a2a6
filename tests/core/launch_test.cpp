#include "testing.hpp"

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "environment_variable.hpp"
#include "npu_train/core/launch.hpp"

extern char** environ;

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Sets the variables of one launch, and unsets those of all others.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, std::string>> variables) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string name(*entry, std::string(*entry).find('='));
      for (const char* prefix :
           {"SLURM_", "OMPI_", "PMI", "MPI_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "KUBERNETES_", "NPU_TRAIN_LAUNCHER"})
        if (name.starts_with(prefix)) names_.insert(name);
    }
    for (const auto& name : names_) hidden_.push_back(std::make_unique<EnvironmentVariable>(name.c_str(), ""));
    for (const auto& name : names_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : variables) set_.push_back(std::make_unique<EnvironmentVariable>(name, value));
  }

 private:
  std::set<std::string> names_{"RANK", "WORLD_SIZE"};
  std::vector<std::unique_ptr<EnvironmentVariable>> hidden_, set_;
};

std::string message_in(std::initializer_list<std::pair<const char*, std::string>> variables) {
  const Environment environment(variables);
  const auto error = error_of([] { launch_of_environment(); });
  CHECK(error.kind() == ErrorKind::Usage);
  return error.what();
}

Launch launch_in(std::initializer_list<std::pair<const char*, std::string>> variables) {
  const Environment environment(variables);
  return launch_of_environment();
}

void check_ranks(const Launch& launch, int rank, int world_size, int local_rank, int local_world_size) {
  CHECK(launch.rank == rank);
  CHECK(launch.world_size == world_size);
  CHECK(launch.local_rank == local_rank);
  CHECK(launch.local_world_size == local_world_size);
}

void check_store(const Launch& launch, const std::string& host, int port, bool served) {
  CHECK(launch.host == host);
  CHECK(launch.port == port);
  CHECK(launch.serves_store == served);
}

}  // namespace

TEST_CASE("a process that was started alone") {
  const auto alone = launch_in({});
  check_ranks(alone, 0, 1, 0, 1);
  check_store(alone, "", 0, false);
  CHECK(alone.launcher.empty());
  CHECK(alone.generation == 0);
  CHECK(launch_in({{"WORLD_SIZE", "1"}}).launcher.empty());
  CHECK(launch_in({{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "none"}}).host.empty());  // ignored for a single process
}

TEST_CASE("torchrun: the agent serves the store") {
  const auto launch = launch_in({{"RANK", "5"},
                                 {"WORLD_SIZE", "8"},
                                 {"LOCAL_RANK", "1"},
                                 {"LOCAL_WORLD_SIZE", "4"},
                                 {"MASTER_ADDR", "node01"},
                                 {"MASTER_PORT", "40123"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                 {"TORCHELASTIC_RESTART_COUNT", "2"},
                                 {"TORCHELASTIC_RUN_ID", "none"}});
  check_ranks(launch, 5, 8, 1, 4);
  check_store(launch, "node01", 40123, false);
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.generation == 2);
}

TEST_CASE("rank 0 serves the store where no agent does") {
  for (const char* rank : {"0", "1"}) {
    const auto launch = launch_in({{"RANK", rank},
                                   {"WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "10.0.0.1"},
                                   {"MASTER_PORT", "29500"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
    check_store(launch, "10.0.0.1", 29500, rank == std::string("0"));
    CHECK(launch.launcher == "a script");
  }
}

TEST_CASE("our launcher describes ranks as torchrun does") {
  const auto launch = launch_in({{"NPU_TRAIN_LAUNCHER", "npu_train"},
                                 {"RANK", "0"},
                                 {"WORLD_SIZE", "2"},
                                 {"LOCAL_RANK", "0"},
                                 {"LOCAL_WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", "40123"},
                                 {"TORCHELASTIC_RUN_ID", "none"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  check_ranks(launch, 0, 2, 0, 2);
  check_store(launch, "127.0.0.1", 40123, false);
  CHECK(launch.launcher == "npu_train");
}

TEST_CASE("a pod of Kubernetes' PyTorchJob has one process") {
  const auto launch = launch_in({{"RANK", "3"},
                                 {"WORLD_SIZE", "4"},
                                 {"MASTER_ADDR", "resnet-master-0"},
                                 {"MASTER_PORT", "23456"},
                                 {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}});
  check_ranks(launch, 3, 4, 0, 1);
  check_store(launch, "resnet-master-0", 23456, false);
  CHECK(launch.launcher == "Kubernetes");
}

TEST_CASE("an allocation of Slurm is no step") {
  CHECK(launch_in({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_NODELIST", "n[1-4]"}}).world_size == 1);
  CHECK(launch_in({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}}).world_size == 1);
  // The shell of salloc may be a step of one task in an allocation of several.
  const auto shell =
      launch_in({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4294967290"}, {"SLURM_PROCID", "0"}});
  CHECK(shell.world_size == 1);
  CHECK(shell.launcher == "Slurm");
}

TEST_CASE("a task of srun") {
  // 7 tasks on four hosts: 2, 2, 2, 1. The last one is on host 3.
  const auto last = launch_in({{"SLURM_STEP_ID", "1"},
                               {"SLURM_JOB_ID", "200505"},
                               {"SLURM_PROCID", "6"},
                               {"SLURM_STEP_NUM_TASKS", "7"},
                               {"SLURM_NTASKS", "9"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_NODEID", "3"},
                               {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                               {"SLURM_STEP_NODELIST", "gnode[08-10,37]"},
                               {"SLURM_JOB_NODELIST", "gnode[01-64]"}});
  check_ranks(last, 6, 7, 0, 1);
  check_store(last, "gnode08", 15000 + (200505 % 15000 * 31 + 1) % 15000, false);
  CHECK(last.launcher == "Slurm");
  const auto third = launch_in({{"SLURM_STEP_ID", "1"},
                                {"SLURM_PROCID", "5"},
                                {"SLURM_STEP_NUM_TASKS", "7"},
                                {"SLURM_LOCALID", "1"},
                                {"SLURM_NODEID", "2"},
                                {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                {"SLURM_STEP_NODELIST", "a"},
                                {"MASTER_ADDR", "10.1.1.1"},
                                {"MASTER_PORT", "29000"}});
  check_ranks(third, 5, 7, 1, 2);
  check_store(third, "10.1.1.1", 29000, false);
}

TEST_CASE("a step of Slurm on one host uses the loopback interface") {
  const auto launch = launch_in({{"SLURM_STEP_ID", "0"},
                                 {"SLURM_JOB_ID", "17"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_NTASKS", "4"},
                                 {"SLURM_LOCALID", "0"},
                                 {"SLURM_NTASKS_PER_NODE", "4"},
                                 {"SLURM_STEP_NODELIST", "node1"}});
  check_ranks(launch, 0, 4, 0, 4);
  check_store(launch, "127.0.0.1", 15000 + 17 * 31, true);
}

TEST_CASE("the first host of a list of Slurm") {
  const std::pair<const char*, const char*> lists[] = {
      {"node7", "node7"},          {"a1,b2", "a1"},        {"n[1-3]", "n1"}, {"n[5,7-9].local", "n5.local"},
      {"r[2-3]n[01-16]", "r2n01"}, {"n[12],a[1-2]", "n12"}};
  const auto host_of = [](const char* list) {
    return launch_in({{"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "0"},
                      {"SLURM_NTASKS", "2"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                      {"SLURM_STEP_NODELIST", list}})
        .host;
  };
  for (const auto& [list, host] : lists) CHECK_MESSAGE(host_of(list) == host, list);
  CHECK(has(error_of([&] { host_of("n[1-3"); }).what(), "MASTER_ADDR is not set"));
}

TEST_CASE("Open MPI: loopback on one host, MASTER_ADDR for several") {
  const auto one_host = launch_in({{"OMPI_COMM_WORLD_RANK", "0"},
                                   {"OMPI_COMM_WORLD_SIZE", "2"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                   {"PMIX_NAMESPACE", "1215430657"},
                                   // set inside an allocation, where these variables describe mpirun's daemon
                                   {"SLURM_STEP_ID", "0"},
                                   {"SLURM_PROCID", "0"},
                                   {"SLURM_NTASKS", "1"}});
  check_ranks(one_host, 0, 2, 0, 2);
  CHECK(one_host.launcher == "Open MPI");
  CHECK(one_host.host == "127.0.0.1");
  CHECK((one_host.port >= 15000 && one_host.port < 30000));
  CHECK(one_host.serves_store);
  CHECK(has(message_in({{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
            "rank 1 of 2, started by Open MPI, but MASTER_ADDR is not set"));
  const auto second = launch_in({{"OMPI_COMM_WORLD_RANK", "1"},
                                 {"OMPI_COMM_WORLD_SIZE", "2"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                 {"MASTER_ADDR", "node1"}});
  check_store(second, "node1", 29500, false);
}

TEST_CASE("MPICH, Cray and PMI of Slurm") {
  const auto mpich = launch_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  check_ranks(mpich, 1, 2, 1, 2);
  check_store(mpich, "127.0.0.1", 29500, false);
  CHECK(mpich.launcher == "MPI");
  const auto cray =
      launch_in({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "h"}});
  check_ranks(cray, 3, 4, 1, 2);
  const auto srun = launch_in({{"PMI_RANK", "1"},
                               {"PMI_SIZE", "2"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_PROCID", "1"},
                               {"SLURM_STEP_NUM_TASKS", "2"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_NODEID", "0"},
                               {"SLURM_STEP_TASKS_PER_NODE", "2"}});
  check_ranks(srun, 1, 2, 1, 2);
  CHECK(srun.launcher == "Slurm");
  CHECK(has(message_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "MASTER_ADDR is not set"));
}

TEST_CASE("a WORLD_SIZE that cannot be honoured is an error") {
  for (const char* value : {"0", "-2", "", "two", "2x", "99999999999"})
    CHECK(has(message_in({{"WORLD_SIZE", value}}), "WORLD_SIZE is '" + std::string(value) + "'; allowed: a whole number from 1"));
  CHECK(has(message_in({{"WORLD_SIZE", "4"}}), "WORLD_SIZE is 4, but RANK is not set"));
  CHECK(has(message_in({{"WORLD_SIZE", "4"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "1"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2"}}),
            "WORLD_SIZE is 4, but Slurm started 2"));
}

TEST_CASE("incomplete and contradictory descriptions name the variable") {
  CHECK(has(message_in({{"RANK", "0"}}), "RANK is '0', but WORLD_SIZE is not set"));
  CHECK(has(message_in({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK is '2'; allowed: a whole number from 0 to 1"));
  CHECK(has(message_in({{"RANK", ""}, {"WORLD_SIZE", "2"}}), "RANK is ''; allowed"));
  CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}), "LOCAL_RANK is '0', but LOCAL_WORLD_SIZE is not set"));
  CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}}), "LOCAL_RANK is not set"));
  CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"}}),
            "LOCAL_WORLD_SIZE is '3'; allowed: a whole number from 1 to 2"));
  CHECK(
      has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}), "LOCAL_RANK is '2'; allowed"));
  CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR is not set"));
  CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", ""}}), "MASTER_ADDR is empty"));
  CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}), "MASTER_PORT is not set"));
  for (const char* port : {"0", "65536", "http", ""})
    CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", port}}),
              "MASTER_PORT is '" + std::string(port) + "'; allowed: a whole number from 1 to 65535"));
  CHECK(has(message_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TORCHELASTIC_RESTART_COUNT", "x"}}), "TORCHELASTIC_RESTART_COUNT is 'x'"));
  for (const char* tasks : {"2(x", "two", "3", "0", "2(x0),2", "1"})
    CHECK(has(message_in({{"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_NTASKS", "2"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "0"},
                          {"SLURM_STEP_TASKS_PER_NODE", tasks}}),
              std::string(tasks) == "1" ? "SLURM_LOCALID is '1'" : "SLURM_STEP_TASKS_PER_NODE is '" + std::string(tasks) + "'"));
  CHECK(has(message_in({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}), "SLURM_NTASKS is not set"));
}
