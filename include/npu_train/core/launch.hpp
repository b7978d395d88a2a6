/// The position of this process in a launch, read from the environment variables of torchrun, Slurm, MPI, Kubernetes or our own launcher.
#pragma once

#include <string>

namespace npu_train {

/// A process of a launch. The default is a process that was started alone.
struct Launch {
  int rank = 0;               ///< from 0 to world_size - 1
  int world_size = 1;         ///< number of processes
  int local_rank = 0;         ///< rank among the processes of this host; also the index of its device
  int local_world_size = 1;   ///< number of processes of this host, which share its cores
  std::string launcher{};     ///< "torchrun", "Slurm", "Open MPI", "MPI", "Kubernetes", "npu_train", "a script"; "" for a process that was
                              ///< started alone
  std::string host{};         ///< host of the store through which the processes find each other; "" in a world of one process
  int port = 0;               ///< port of the store; 0 in a world of one process
  bool serves_store = false;  ///< this process (rank 0) hosts the store; false if an agent or our launcher hosts it
  int generation = 0;         ///< number of restarts so far; prefixes the keys of the store
  int first_world_size = 1;   ///< world_size of the first start; a multiple of the current one if our launcher dropped ranks in a restart
};

/// Reads the launch from the first of these descriptions that the environment contains:
///
///   RANK, WORLD_SIZE             torchrun, our launcher, Kubernetes' PyTorchJob, a script. MASTER_ADDR and MASTER_PORT are required.
///                                LOCAL_RANK and LOCAL_WORLD_SIZE are set together or not at all; without them, the process is the
///                                only one of its host.
///   OMPI_COMM_WORLD_RANK, ...    Open MPI
///   PMI_RANK, PMI_SIZE           MPICH and Intel MPI, with MPI_LOCALRANKID and MPI_LOCALNRANKS
///   SLURM_STEP_ID, SLURM_PROCID  a task of srun. Without srun, the script of sbatch and the shell of salloc are a single process.
///
/// MASTER_ADDR and MASTER_PORT have priority if set. Otherwise, if all processes are on one host, the store is on the loopback interface;
/// if they are on several hosts of Slurm, it is on the first host of the step. The port is derived from the identity of the job
/// (docs/distributed.md).
///
/// Error(Usage) if the description is incomplete, if values contradict each other (RANK >= WORLD_SIZE, a WORLD_SIZE that differs from the
/// number of started processes), or if there are several hosts but no MASTER_ADDR (needed except with Slurm). The message names the
/// variable, its value and the allowed values.
Launch launch_of_environment();

}  // namespace npu_train
