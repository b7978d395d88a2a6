// Sees the operations of this thread that use parameters or cost FLOPs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace npu_train::detail {

struct SeenOp {
  std::string name;                 // without its namespace
  const void* parameter = nullptr;  // storage of the first input that is one of the watched parameters
  std::vector<int64_t> output_shape;
  int64_t flops = 0;
};

// While it lives, operations of this thread are shown to `on_op`. One at a time on a thread.
class OpCounter {
 public:
  OpCounter(const std::vector<at::Tensor>& parameters, std::function<void(const SeenOp&)> on_op);
  ~OpCounter();
  OpCounter(const OpCounter&) = delete;
  OpCounter& operator=(const OpCounter&) = delete;

  // Something went wrong inside a callback, where exceptions are swallowed.
  bool failed() const { return failed_; }

 private:
  struct Context;
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn);
  static void on_end(const at::RecordFunction& fn, at::ObserverContext* context);
  void report(const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs);

  std::function<void(const SeenOp&)> on_op_;
  std::unordered_map<const void*, bool> parameters_;
  at::CallbackHandle handle_ = 0;
  int inside_ = 0;  // depth of operations below one that was counted as a whole
  bool failed_ = false;
  OpCounter* before_;
};

}  // namespace npu_train::detail
