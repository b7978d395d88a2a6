/// Which process of a launch this one is, as torchrun, Slurm, MPI, Kubernetes or our own launcher describe it in the environment.
#pragma once

#include <string>

namespace npu_train {

/// A process of a launch. The default is a process that was started alone.
struct Launch {
  int rank = 0;               ///< from 0 to world_size - 1
  int world_size = 1;         ///< number of processes
  int local_rank = 0;         ///< among the processes of this host; also the index of its device
  int local_world_size = 1;   ///< number of processes of this host, which share its cores
  std::string launcher{};     ///< "torchrun", "Slurm", "Open MPI", "MPI", "Kubernetes", "npu_train", "a script"; "" for a process that was
                              ///< started alone
  std::string host{};         ///< of the store through which the processes find each other; "" in a world of one process
  int port = 0;               ///< of the store; 0 in a world of one process
  bool serves_store = false;  ///< this process (rank 0) hosts the store; false where an agent or our launcher does
  int generation = 0;         ///< number of restarts so far; prefixes the keys of the store
  int first_world_size = 1;   ///< of the first start, a multiple of world_size, where our launcher has left ranks out of a restart; else
                              ///< world_size
};

/// Reads the first of these descriptions that is in the environment:
///
///   RANK, WORLD_SIZE             torchrun, our launcher, Kubernetes' PyTorchJob, a script. MASTER_ADDR and MASTER_PORT are required.
///                                LOCAL_RANK and LOCAL_WORLD_SIZE come together; without them the process is the only one of its host.
///   OMPI_COMM_WORLD_RANK, ...    Open MPI
///   PMI_RANK, PMI_SIZE           MPICH and Intel MPI, with MPI_LOCALRANKID and MPI_LOCALNRANKS
///   SLURM_STEP_ID, SLURM_PROCID  a task of srun. An allocation of Slurm alone (the script of sbatch, the shell of salloc) is one process.
///
/// MASTER_ADDR and MASTER_PORT have priority wherever they are set. Otherwise the store is on the loopback interface if all processes are
/// on one host, and on the first host of a step of Slurm; the port follows from the identity of the job (docs/distributed.md).
///
/// Error(Usage) names the variable, its value and what is allowed: for an incomplete description, for values that contradict each other
/// (RANK >= WORLD_SIZE, a WORLD_SIZE that differs from what the launcher started), and for several hosts without MASTER_ADDR.
Launch launch_of_environment();

}  // namespace npu_train
