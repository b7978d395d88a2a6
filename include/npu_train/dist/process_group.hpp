/// The group of processes that train together, and its collectives. c10d of libtorch implements them: Gloo, and NCCL or HCCL between device
/// memories. This interface has only the calls that training needs, so that no other code depends on c10d.
///
/// Collectives form three sequences, which do not wait for each other: exchanges (all_to_all, all_reduce, reduce, reduce_scatter), gathers
/// (all_gather, distribute), and agreements (all other functions). Within each sequence, every rank makes the same calls in the same order.
/// Any error of a collective is Error(Peer); the group can then only be abandoned.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/dist/reduction_times.hpp"

namespace npu_train {

/// A collective in progress. Its tensors must not be accessed before wait() has returned.
class Collective {
 public:
  virtual ~Collective() = default;
  /// Whether wait() would return, or throw, immediately.
  virtual bool done() = 0;
  /// Blocks until the collective has finished. Error(Peer) if it failed.
  virtual void wait() = 0;
  /// Returns the time at which the collective began and, after done() or wait(), the time at which it ended, in seconds of SteadyClock.
  /// Both are 0 if the transport does not report them.
  virtual ReductionTimes::Span span() const { return {}; }
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns the number of ranks per machine, equal on all machines; size() if it is not known.
  virtual int local_size() const { return size(); }
  /// Returns a group of some of the ranks. `ranks` are in ascending order and include this rank. Every rank must call it, each for its own
  /// group; groups do not overlap. Error(Usage) if a program's own ProcessGroup does not implement it.
  virtual std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks);

  /// Returns the transport for tensors on `device`: "NCCL" or "HCCL" if it connects the devices of all ranks, else "Gloo", for which the
  /// caller makes copies in host memory. The first call for a kind of device waits for the other ranks. Error(Device) if dist.backend names
  /// a transport that a rank lacks, Error(Usage) if that transport does not support `device`.
  virtual std::string transport(const c10::Device& /*device*/) { return kHostTransport; }
  static constexpr const char* kHostTransport = "Gloo";

  /// Sends part r of `in` [size * n] to rank r, and receives part r of `out` [size * n] from rank r. The tensors of all exchanges and
  /// gathers must be contiguous. They are in host memory, or on a device whose memory a transport other than Gloo connects. On such a
  /// device, all exchanges and gathers form one sequence, and wait() blocks the current stream instead of the host.
  virtual std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) = 0;
  /// Replaces `tensor` by its sum over ranks, added in an order that the transport chooses.
  virtual std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) = 0;
  /// Like all_reduce(), but only rank 0 gets the sum; on other ranks `tensor` loses its content. Error(Usage) if a program's own
  /// ProcessGroup does not implement it; the same applies to distribute().
  virtual std::unique_ptr<Collective> reduce(const at::Tensor& tensor);
  /// Writes part r of the sum over ranks of `in` [size * n] to `out` [n] on rank r; `in` may lose its content. The default implementation
  /// uses all_reduce().
  virtual std::unique_ptr<Collective> reduce_scatter(const at::Tensor& out, const at::Tensor& in);
  /// Replaces `tensor` on every rank by the one of rank 0.
  virtual std::unique_ptr<Collective> distribute(const at::Tensor& tensor);
  /// Gathers `in` [n] from all ranks: part r of `out` [size * n] comes from rank r.
  virtual std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) = 0;

  /// Returns the `own` of each rank, in rank order; lengths may differ, and may be 0. `call` names the caller: if ranks are in different
  /// calls, Error(Peer) names both.
  virtual std::vector<std::string> gather(const std::string& call, const std::string& own) = 0;
  /// Gathers numbers in the same way. Error(Peer) if the ranks give different counts.
  std::vector<std::vector<double>> gather(const std::string& call, const std::vector<double>& own);
  /// Returns `own` [n] of every rank as [size, n]. If a transport connects the device of `own`, the result is on that device, in the dtype
  /// of `own`, and ranks with different calls or counts are not detected. Otherwise the result is in host memory, in fp64, and different
  /// calls or counts are an Error(Peer).
  at::Tensor gather(const std::string& call, const at::Tensor& own);
  /// Replaces `tensor`, contiguous and in host memory, by the one of rank 0.
  virtual void broadcast(const at::Tensor& tensor) = 0;
  /// Waits until each rank has made the call.
  void barrier(const std::string& call) { gather(call, std::string()); }

  /// Calls `work` on rank 0, and then on the other ranks. They wait for a key in the store, without a time limit as long as rank 0 is
  /// alive. If `work` throws on rank 0, they get Error(Peer).
  virtual void main_first(const std::function<void()>& work) = 0;

  /// Sets the current work of this rank ("step 12, forward and backward"), for the error messages of ranks that wait for it.
  virtual void does(std::string /*work*/) {}

  /// Leaves the group without waiting for the other ranks, which get Error(Peer) when this process ends. Collectives in progress are
  /// leaked, because destructors of libtorch wait for them until the timeout.
  virtual void abandon() noexcept = 0;

  /// Returns the group of the launch that this process belongs to (launch_of_environment()), after all ranks have joined. A process that
  /// was started alone gets a group of one process, without c10d.
  static std::shared_ptr<ProcessGroup> from_environment(const DistOptions& options = {});
};

/// Creates the group of several processes. `options.timeout` limits every wait: for a collective and, in this function, for the store and
/// for the other ranks. Error(Peer) names the ranks that did not join; Error(Device) if the store cannot be reached or served or does not
/// answer, if the limit of file descriptors is too low for the number of ranks, or if this libtorch has no Gloo.
///
/// `stopped` is called several times a second while ranks meet, and while they wait in main_first(). Once it returns true, after a signal
/// for example, the wait ends with an Error(Peer) for which is_stopped_wait() is true.
std::shared_ptr<ProcessGroup> make_process_group(const Launch& launch, const DistOptions& options = {}, std::function<bool()> stopped = {});

/// Whether an error reports that `stopped` of make_process_group() ended a wait, and that no rank failed.
bool is_stopped_wait(const Error& error);
/// Returns an error for which is_stopped_wait() is true, for use by a program's own ProcessGroup.
Error stopped_while_waiting(const std::string& who);

}  // namespace npu_train
