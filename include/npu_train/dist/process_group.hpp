/// The processes that train together, and the collectives between them. c10d of libtorch carries everything: Gloo, and between the memories
/// of devices NCCL or HCCL. This interface holds what training needs of it, so that no other code sees c10d.
///
/// Every rank makes the same calls in the same order within each of three sequences, which do not wait for each other: exchanges
/// (all_to_all, all_reduce, reduce, reduce_scatter), gathers (all_gather, distribute), and agreements (all other functions). An error of a
/// collective, of whatever kind, is Error(Peer): the group can then only be abandoned.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/dist/launch.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/dist/reduction_times.hpp"

namespace npu_train {

/// A collective on its way. Its tensors must not be touched before wait() has returned.
class Collective {
 public:
  virtual ~Collective() = default;
  /// Whether wait() returns, or throws, at once.
  virtual bool done() = 0;
  /// Error(Peer) if it failed.
  virtual void wait() = 0;
  /// When it began and, after done() or wait(), when it had ended, in seconds of SteadyClock. Zeros if the transport does not say.
  virtual ReductionTimes::Span span() const { return {}; }
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The number of its ranks on this machine, and the same on every other; size() where that is not known.
  virtual int local_size() const { return size(); }
  /// The group of some ranks, ascending, among them this one. Every rank makes the call, with a group of its own; no rank is in two. Error
  /// (Usage) in a group of a program that has none.
  virtual std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks);

  /// What carries tensors on `device`: "NCCL" or "HCCL" if it connects the devices of all ranks, else "Gloo", to which the caller gives
  /// copies in host memory. The first call for a kind of device waits for the other ranks. Error(Device) if dist.backend names a transport
  /// that a rank lacks, Error(Usage) if it is not one for `device`.
  virtual std::string transport(const c10::Device& /*device*/) { return kHostTransport; }
  static constexpr const char* kHostTransport = "Gloo";

  /// Tensors are contiguous, and in host memory or on a device that another transport connects. There, all exchanges and gathers are one
  /// sequence, and wait() makes the current stream wait, not the host. `in` [size * n]: part r goes to rank r. `out` [size * n]: part r
  /// comes from rank r.
  virtual std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) = 0;
  /// `tensor` becomes the sum over ranks, added in an order that the transport chooses.
  virtual std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) = 0;
  /// The same on rank 0 alone; the `tensor` of other ranks loses its content. Error(Usage) in a group of a program that has no such call,
  /// and so for distribute().
  virtual std::unique_ptr<Collective> reduce(const at::Tensor& tensor);
  /// `out` [n] becomes part r of the sum of `in` [size * n] over ranks, on rank r; `in` may lose its content. By all_reduce() unless a
  /// group has a call for it.
  virtual std::unique_ptr<Collective> reduce_scatter(const at::Tensor& out, const at::Tensor& in);
  /// `tensor` becomes that of rank 0.
  virtual std::unique_ptr<Collective> distribute(const at::Tensor& tensor);
  /// `out` [size * n]: part r is the `in` [n] of rank r.
  virtual std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) = 0;

  /// The `own` of each rank, in the order of ranks; of any length, also empty. `call` names the caller: ranks that are in different calls
  /// get an Error(Peer) that names both.
  virtual std::vector<std::string> gather(const std::string& call, const std::string& own) = 0;
  /// The same for numbers. Error(Peer) if a rank gives another count.
  std::vector<std::vector<double>> gather(const std::string& call, const std::vector<double>& own);
  /// `own` [n] of every rank, as [size, n]. Where a transport connects its device, the result stays on it, in the dtype of `own`, and other
  /// calls or counts of a rank are not noticed. Elsewhere it is in host memory, in fp64, and they are an Error(Peer).
  at::Tensor gather(const std::string& call, const at::Tensor& own);
  /// `tensor`, contiguous and in host memory, becomes that of rank 0.
  virtual void broadcast(const at::Tensor& tensor) = 0;
  /// Returns when each rank has called it.
  void barrier(const std::string& call) { gather(call, std::string()); }

  /// Calls `work` on rank 0, then on the others, who wait for it in the store: without a limit of time, as long as rank 0 is alive. If its
  /// `work` throws, they get Error(Peer).
  virtual void main_first(const std::function<void()>& work) = 0;

  /// What this rank does from now on ("step 12, forward and backward"), for the messages of ranks that wait for it in vain.
  virtual void does(std::string /*work*/) {}

  /// Leaves the group without waiting for the others, who get Error(Peer) when the process ends. What is on its way is leaked, since
  /// destructors of libtorch wait for it until the timeout.
  virtual void abandon() noexcept = 0;

  /// The group of the launch that this process belongs to (launch_of_environment()). Returns when all ranks have come. A process that was
  /// started alone gets a group of one, without c10d.
  static std::shared_ptr<ProcessGroup> from_environment(const DistOptions& options = {});
};

/// Of several processes. Collectives wait at most `options.timeout`, and so does this function for the store and for the other ranks.
/// Error(Peer) names the ranks that did not come; Error(Device) if the store cannot be reached or served or does not answer, if the limit
/// of file descriptors is too low for the number of ranks, or if this libtorch has no Gloo.
///
/// `stopped`: called several times a second while ranks meet, and while they wait in main_first(). When it has become true, such as after a
/// signal, the wait ends with an Error(Peer) that is_stopped_wait().
std::shared_ptr<ProcessGroup> make_process_group(const Launch& launch, const DistOptions& options = {}, std::function<bool()> stopped = {});

/// Whether an error says that `stopped` of make_process_group() ended a wait, and no rank failed.
bool is_stopped_wait(const Error& error);
/// That error, for a group of a program.
Error stopped_while_waiting(const std::string& who);

}  // namespace npu_train
