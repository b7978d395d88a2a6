#include "npu_train/core/launch.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/read_text.hpp"

namespace npu_train {
namespace {

constexpr const char* kLaunch = "launch";
constexpr const char* kLoopback = "127.0.0.1";
constexpr int kLargest = std::numeric_limits<int>::max();
constexpr int kLargestPort = 65535;
constexpr int kDefaultPort = 29500;  // default of torch.distributed
// Range of ports below those that Linux uses for outgoing connections (32768 and above).
constexpr int kFirstPort = 15000, kPorts = 15000;

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

std::string text_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

int number_of(const char* variable, int lowest, int highest) {
  const auto text = text_of(variable);
  const auto number = whole_number(text);
  check(number && *number >= lowest && *number <= highest, ErrorKind::Usage, kLaunch, variable, " is '", text,
        "'; allowed: a whole number ", highest == kLargest ? str_cat("from ", lowest) : str_cat("from ", lowest, " to ", highest));
  return static_cast<int>(*number);
}

/// Names of the variables with which a launcher describes a process.
struct Names {
  const char *rank, *world_size, *local_rank, *local_world_size;
};
constexpr Names kTorch{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMpi{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};  // MPICH, Intel MPI
constexpr Names kPals{"PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"};   // Cray

void require(const char* given, const char* missing) {
  check(is_set(missing), ErrorKind::Usage, kLaunch, given, " is '", text_of(given), "', but ", missing,
        " is not set; the two describe a process together; hint: set both, or start one process with env -u ", given, " ...");
}

void read_world(const char* rank, const char* world_size, Launch& out) {
  require(rank, world_size);
  out.world_size = number_of(world_size, 1, kLargest);
  out.rank = number_of(rank, 0, out.world_size - 1);
}

void read_local(const char* local_rank, int local_world_size, Launch& out) {
  out.local_world_size = local_world_size;
  out.local_rank = number_of(local_rank, 0, local_world_size - 1);
}

Launch read(const Names& names, const char* launcher) {
  Launch out;
  out.launcher = launcher;
  read_world(names.rank, names.world_size, out);
  if (is_set(names.local_rank)) require(names.local_rank, names.local_world_size);
  if (is_set(names.local_world_size)) require(names.local_world_size, names.local_rank);
  if (is_set(names.local_rank)) read_local(names.local_rank, number_of(names.local_world_size, 1, out.world_size), out);
  return out;
}

Launch launch_of_torch() {
  auto out = read(kTorch, is_set("NPU_TRAIN_LAUNCHER")        ? "npu_train"
                          : is_set("TORCHELASTIC_RUN_ID")     ? "torchrun"
                          : is_set("KUBERNETES_SERVICE_HOST") ? "Kubernetes"
                                                              : "a script");
  if (is_set("TORCHELASTIC_RESTART_COUNT")) out.generation = number_of("TORCHELASTIC_RESTART_COUNT", 0, kLargest);
  return out;
}

/// Returns the entry of a node in a list such as "2(x3),1", which means 2, 2, 2, 1. Returns nullopt if the list is too short or has another
/// form.
std::optional<int64_t> tasks_of_node(std::string_view list, int64_t node) {
  while (node >= 0 && !list.empty()) {
    const auto entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    const auto open = entry.find("(x");
    const auto tasks = whole_number(entry.substr(0, open));
    const auto repeated = open == std::string_view::npos ? std::optional<int64_t>(1)
                          : entry.back() == ')'          ? whole_number(entry.substr(open + 2, entry.size() - open - 3))
                                                         : std::nullopt;
    if (!tasks || !repeated || *tasks < 1 || *repeated < 1) return std::nullopt;
    if (node < *repeated) return tasks;
    node -= *repeated;
  }
  return std::nullopt;
}

Launch launch_of_slurm() {
  Launch out;
  out.launcher = "Slurm";
  read_world("SLURM_PROCID", is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", out);
  if (out.world_size == 1) return out;
  const char* list = is_set("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_NTASKS_PER_NODE";
  require("SLURM_PROCID", "SLURM_LOCALID");
  require("SLURM_LOCALID", list);
  const bool of_step = std::string_view(list) == "SLURM_STEP_TASKS_PER_NODE";
  const auto tasks = tasks_of_node(text_of(list), of_step && is_set("SLURM_NODEID") ? number_of("SLURM_NODEID", 0, kLargest) : 0);
  check(tasks && *tasks <= out.world_size, ErrorKind::Usage, kLaunch, list, " is '", text_of(list), "', with ", out.world_size,
        " tasks in all; allowed: the number of tasks of each node, as in 2(x3),1");
  read_local("SLURM_LOCALID", static_cast<int>(*tasks), out);
  return out;
}

/// Returns the first host of a list such as "node[01-04,7],other": node01.
std::string first_host(std::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const auto close = list.find(']', i);
    if (close == std::string_view::npos) return "";
    const auto range = list.substr(i + 1, close - i - 1);
    host += range.substr(0, range.find_first_of(",-"));
    i = close;
  }
  return host;
}

/// Returns a port that is the same for all tasks of a step, and differs between steps of a job and between successive jobs.
int port_of_step() {
  const auto job = whole_number(text_of("SLURM_JOB_ID")), step = whole_number(text_of("SLURM_STEP_ID"));
  if (!job || !step || *job < 0 || *step < 0) return kDefaultPort;
  return kFirstPort + static_cast<int>((*job % kPorts * 31 + *step % kPorts) % kPorts);
}

/// Returns a port that depends on the job, which Open MPI names in PMIX_NAMESPACE. MPICH's variables do not differ between two jobs.
int port_of_mpi() {
  if (!is_set("PMIX_NAMESPACE")) return kDefaultPort;
  return kFirstPort + static_cast<int>(hash64(text_of("PMIX_NAMESPACE")) % kPorts);
}

/// Sets the address of the store for a launch by Slurm or MPI. MASTER_ADDR and MASTER_PORT, if set, replace it in find_store().
void place_store(Launch& out) {
  const bool one_host = out.local_world_size == out.world_size;
  if (out.launcher == "Slurm") {
    out.host = one_host ? kLoopback : first_host(text_of("SLURM_STEP_NODELIST"));
    out.port = port_of_step();
  } else if (out.launcher == "Open MPI" || out.launcher == "MPI") {
    out.host = one_host ? kLoopback : "";
    out.port = port_of_mpi();
  }
}

void find_store(Launch& out) {
  place_store(out);
  if (is_set("MASTER_ADDR")) out.host = text_of("MASTER_ADDR");
  check(!out.host.empty(), ErrorKind::Usage, kLaunch, "this is rank ", out.rank, " of ", out.world_size, ", started by ", out.launcher,
        ", but MASTER_ADDR is ", is_set("MASTER_ADDR") ? "empty" : "not set",
        "; it is the host name or the address of rank 0; hint: export MASTER_ADDR and MASTER_PORT, the same for every rank");
  if (is_set("MASTER_PORT")) out.port = number_of("MASTER_PORT", 1, kLargestPort);
  check(out.port != 0, ErrorKind::Usage, kLaunch, "MASTER_ADDR is '", out.host,
        "', but MASTER_PORT is not set; it is a free port of that host, the same for every rank; hint: export MASTER_PORT=29500");
  out.serves_store = out.rank == 0 && text_of("TORCHELASTIC_USE_AGENT_STORE") != "True";
}

Launch read_any() {
  if (is_set("RANK")) return launch_of_torch();
  if (is_set(kOpenMpi.rank)) return read(kOpenMpi, "Open MPI");
  // Checks MPI before Slurm: mpirun starts its daemons as a step of Slurm, and the step's variables do not describe the processes that the
  // daemons start. Slurm's own PMI sets PMI_RANK, but not the local rank; Slurm's variables are used in that case.
  if (is_set(kPals.rank) && is_set(kPals.local_rank)) return read(kPals, "MPI");
  const bool step = is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID");
  if (is_set(kMpi.rank) && (is_set(kMpi.local_rank) || !step)) return read(kMpi, "MPI");
  return step ? launch_of_slurm() : Launch();
}

}  // namespace

Launch launch_of_environment() {
  auto out = read_any();
  if (is_set("WORLD_SIZE")) {
    const int world_size = number_of("WORLD_SIZE", 1, kLargest);
    check(world_size == out.world_size, ErrorKind::Usage, kLaunch, "WORLD_SIZE is ", world_size, ", but ",
          out.launcher.empty() ? "RANK is not set" : str_cat(out.launcher, " started ", out.world_size),
          "; allowed: the number of processes that were started; hint: unset WORLD_SIZE (env -u WORLD_SIZE ...), and start ", world_size,
          " processes with train_app --nproc ", world_size, " or torchrun");
  }
  out.first_world_size = out.world_size;
  if (is_set("NPU_TRAIN_FIRST_WORLD_SIZE") && out.launcher == "npu_train") {
    out.first_world_size = number_of("NPU_TRAIN_FIRST_WORLD_SIZE", out.world_size, kLargest);
    check(out.first_world_size % out.world_size == 0, ErrorKind::Usage, kLaunch, "NPU_TRAIN_FIRST_WORLD_SIZE is ", out.first_world_size,
          ", and WORLD_SIZE ", out.world_size, "; allowed: a number that divides it");
  }
  if (out.world_size > 1) find_store(out);
  return out;
}

}  // namespace npu_train
