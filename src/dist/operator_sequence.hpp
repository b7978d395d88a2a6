// The operators of a step by name, in their order: what ranks compare that compute the same.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <mutex>
#include <string>

namespace npu_train::detail {

// Records the operators of this thread, and of the backward passes that it starts, from its construction to stop(). Both in one thread.
class OperatorSequence {
 public:
  OperatorSequence();
  ~OperatorSequence();
  OperatorSequence(const OperatorSequence&) = delete;
  OperatorSequence& operator=(const OperatorSequence&) = delete;

  // The names, one a line; those of the parts of an operator follow it.
  std::string stop();

  // While it lives, operators of this thread are not recorded: those of the reduction, whose order depends on the other ranks.
  class Unseen {
    c10::DebugInfoGuard guard_;

   public:
    Unseen();
  };

 private:
  struct Record;
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& fn);

  std::shared_ptr<Record> record_;
  std::unique_ptr<c10::DebugInfoGuard> guard_;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

// The first line in which the texts differ: its number from 1, and both lines; "" past the last one.
struct LineDifference {
  size_t number = 0;
  std::string a{}, b{};
};
LineDifference first_difference(const std::string& a, const std::string& b);

}  // namespace npu_train::detail
