#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "npu_train/trace/operator_values.hpp"
#include "npu_train/trace/recorded_op.hpp"

using npu_train::detail::arguments_of;
using npu_train::detail::results_of;
using npu_train::detail::tensors_of;

namespace {

thread_local std::vector<std::pair<size_t, size_t>> counts;  // numbers of arguments and results, by range
thread_local std::vector<size_t> open_ranges;                // indices in `counts` of the ranges that are open

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  open_ranges.push_back(counts.size());
  counts.emplace_back(arguments_of(fn).size(), 0);
  return nullptr;
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* /*context*/) {
  counts.at(open_ranges.back()).second = results_of(fn).size();
  open_ranges.pop_back();
}

}  // namespace

TEST_CASE("an operator has its own arguments and results, however it is called, and a range what it was given") {
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_start, &on_end).needsInputs(true).needsOutputs(true));
  const at::Tensor x = at::ones({2});
  counts.clear();
  at::relu(x);
  const auto plain = counts;
  counts.clear();
  torch::jit::Stack stack{x, 3, x};  // two values of the program are below the argument
  c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "").callBoxed(&stack);
  const auto boxed = counts;
  counts.clear();
  {
    npu_train::detail::RecordedOp record("range", [&] { return std::vector<c10::IValue>{x, x}; });
    record.result(x);
  }
  at::removeCallback(handle);
  REQUIRE(!plain.empty());
  CHECK((plain.front() == std::pair<size_t, size_t>(1, 1)));
  REQUIRE(!boxed.empty());
  CHECK((boxed.front() == std::pair<size_t, size_t>(1, 1)));
  CHECK(stack.size() == 3);
  CHECK((counts == std::vector<std::pair<size_t, size_t>>{{2, 1}}));
}

TEST_CASE("tensors of every kind of value, in order, without gaps") {
  const at::Tensor a = at::ones({1}), b = at::ones({2}), c = at::ones({3}), d = at::ones({4});
  const c10::List<std::optional<at::Tensor>> gaps({std::nullopt, c, std::optional<at::Tensor>(at::Tensor())});
  const std::vector<c10::IValue> values = {
      c10::IValue(a),    c10::IValue(1.0), c10::IValue(), c10::IValue(at::Tensor()), c10::IValue(std::vector<at::Tensor>{b}),
      c10::IValue(gaps), c10::IValue(d)};
  const auto found = tensors_of(values);
  REQUIRE(found.size() == 4);
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].numel() == static_cast<int64_t>(i) + 1);
}
