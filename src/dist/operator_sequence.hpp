// The names of the operators of a step, in their order, which ranks compare with each other.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <mutex>
#include <string>

namespace npu_train::detail {

// Records the operators of this thread, and of the backward passes that it starts, until stop() is called in the same thread.
class OperatorSequence {
 public:
  OperatorSequence();
  ~OperatorSequence();
  OperatorSequence(const OperatorSequence&) = delete;
  OperatorSequence& operator=(const OperatorSequence&) = delete;

  // Returns the names, one per line; an operator is followed by the operators that it calls.
  std::string stop();

  // During its lifetime, operators of this thread are not recorded. It hides the operators of the reduction, whose order depends on the
  // other ranks.
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

// The first line in which two texts differ: its number from 1, and both lines; "" past the end of a text.
struct LineDifference {
  size_t number = 0;
  std::string a{}, b{};
};
LineDifference first_difference(const std::string& a, const std::string& b);

}  // namespace npu_train::detail
