// Must run before any other test of this program. ctest runs each file in a process of its own; doctest runs the files in the order of
// their names.
#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "npu_train/trace/op_mode.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct Counting final : npu_train::detail::OpMode {
  int calls = 0;
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override {
    ++calls;
    npu_train::detail::call_below(op, stack);
  }
};

void of_the_other(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(npu_train::detail::kOpModeKey);
  op.callBoxed(stack);
}

}  // namespace

TEST_CASE("a dispatch key that another library has taken is an Error that names it, and the key works once it is free") {
  Counting mode;
  const at::Tensor x = at::ones({2});
  {
    torch::Library other(torch::Library::IMPL, "_", npu_train::detail::kOpModeKey, __FILE__, __LINE__);
    other.fallback(torch::CppFunction::makeFromBoxedFunction<&of_the_other>());
    const Error e = error_of([&] { const npu_train::detail::OpModeGuard guard(mode); });
    CHECK((e.kind() == ErrorKind::Device));
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(has(text, "[operator mode] another library of this process"));
    CHECK(has(text, c10::toString(npu_train::detail::kOpModeKey)));
    CHECK(has(text, "; hint: do not load that library"));
    CHECK_FALSE(npu_train::detail::in_op_mode());
    CHECK((x + x).equal(at::full({2}, 2.0)));
  }
  const npu_train::detail::OpModeGuard guard(mode);
  CHECK((x + x).equal(at::full({2}, 2.0)));
  CHECK(mode.calls == 3);  // counts full, add and equal
}
