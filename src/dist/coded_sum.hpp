// The sum over ranks of a vector that travels in a code: in parts to each rank, added in fp32 in the order of ranks, and coded again to
// all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "dist/value_code.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// A tensor on its way. `in` and `out` are where the transport reads and writes: in host memory, or on a device that it connects.
class Message {
 public:
  // `own` [ranks, n] to each rank its row, or `own` [1, n] to all.
  static Message exchange(ProcessGroup& group, const at::Tensor& own, bool between_devices);
  static Message gather(ProcessGroup& group, const at::Tensor& own, bool between_devices);
  bool done() { return collective_->done(); }
  // [ranks, n], on the device of what was sent.
  at::Tensor wait();
  // After wait().
  ReductionTimes::Span span() const { return span_; }
  // That this rank sends to others.
  int64_t bytes() const { return bytes_; }

 private:
  Message(const at::Tensor& own, int ranks, bool between_devices);
  c10::Device device_;
  at::Tensor in_, out_;
  std::unique_ptr<Collective> collective_;
  ReductionTimes::Span span_;
  int64_t bytes_ = 0;
};

class CodedSum {
 public:
  CodedSum(ProcessGroup& group, ValueCode code, bool between_devices) : group_(group), code_(code), between_devices_(between_devices) {}

  // fp32 [n], n a multiple of the number of ranks. Returns what the others read of it.
  at::Tensor send(const at::Tensor& values);
  bool arrived() { return exchange_->done(); }
  // Nothing is on its way.
  bool done() { return (exchange_ == nullptr || exchange_->done()) && (gather_ == nullptr || gather_->done()); }
  // Waits: the sum of this rank's part [n / ranks].
  at::Tensor add();
  // To all ranks. Returns what they read of it.
  at::Tensor gather(const at::Tensor& part);
  // Waits: the sums of all parts [n].
  at::Tensor finish();

  // Of the last sum; bytes of both messages.
  const ReductionTimes::Bucket& times() const { return times_; }

 private:
  ProcessGroup& group_;
  ValueCode code_;
  bool between_devices_;
  int64_t part_ = 0;  // number of elements
  std::unique_ptr<Message> exchange_, gather_;
  ReductionTimes::Bucket times_;
};

}  // namespace npu_train::detail
