#include "testing.hpp"

#include <ATen/ATen.h>

#include <string>
#include <thread>
#include <vector>

#include "npu_train/trace/op_mode.hpp"

using namespace npu_train::detail;

namespace {

struct Noting final : OpMode {
  std::vector<std::string> seen;
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override {
    seen.push_back(op.schema().name());
    call_below(op, stack);
  }
};
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a mode receives the outermost operators of its thread while its guard lives") {
  Noting mode;
  const at::Tensor x = at::ones({1, 2, 3, 3}), w = at::ones({4, 2, 1, 1});
  {
    const OpModeGuard guard(mode);
    CHECK(in_op_mode());
    at::relu(at::conv2d(x, w));
    std::thread([&] { at::neg(x); }).join();
  }
  CHECK_FALSE(in_op_mode());
  at::neg(x);
  CHECK((mode.seen == Names{"aten::conv2d", "aten::relu"}));
}

TEST_CASE("the mode of the inner guard receives, and no mode inside NoOpMode") {
  Noting outer, inner;
  const at::Tensor x = at::ones({2});
  const OpModeGuard first(outer);
  {
    const OpModeGuard second(inner);
    at::neg(x);
    const NoOpMode none;
    CHECK_FALSE(in_op_mode());
    at::abs(x);
  }
  at::exp(x);
  CHECK((inner.seen == Names{"aten::neg"}));
  CHECK((outer.seen == Names{"aten::exp"}));
}
