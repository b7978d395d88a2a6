// Sum over ranks of an encoded vector: each rank adds one part of all vectors, in fp32 and in rank order, and sends its encoded sum to all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "dist/value_code.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// A message in flight. The transport reads `in` and writes `out`, which are in host memory or on a device that it connects.
class Message {
 public:
  // exchange() sends row r of `own` [ranks, n] to rank r; gather() sends `own` [1, n] to all ranks.
  static Message exchange(ProcessGroup& group, const at::Tensor& own, bool between_devices);
  static Message gather(ProcessGroup& group, const at::Tensor& own, bool between_devices);
  bool done() { return collective_->done(); }
  // Blocks; returns [ranks, n] on the device of the sent tensor.
  at::Tensor wait();
  // Valid after wait().
  ReductionTimes::Span span() const { return span_; }
  // Returns the bytes that this rank sends to others.
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

  // Sends fp32 [n], with n a multiple of the number of ranks. Returns the values as the other ranks decode them.
  at::Tensor send(const at::Tensor& values);
  bool arrived() { return exchange_->done(); }
  // Whether no message is in flight.
  bool done() { return (exchange_ == nullptr || exchange_->done()) && (gather_ == nullptr || gather_->done()); }
  // Blocks; returns the sum of this rank's part [n / ranks].
  at::Tensor add();
  // Sends `part` to all ranks. Returns the values as these ranks decode them.
  at::Tensor gather(const at::Tensor& part);
  // Blocks; returns the sums of all parts [n].
  at::Tensor finish();

  // Timing of the last sum; its bytes are those of exchange and gather.
  const ReductionTimes::Bucket& times() const { return times_; }

 private:
  ProcessGroup& group_;
  ValueCode code_;
  bool between_devices_;
  int64_t part_ = 0;  // elements of a part
  std::unique_ptr<Message> exchange_, gather_;
  ReductionTimes::Bucket times_;
};

}  // namespace npu_train::detail
