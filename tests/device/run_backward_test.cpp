#include "testing.hpp"

#include "npu_train/device/run_backward.hpp"

#include <stdexcept>

#include <torch/types.h>

#include "device_under_test.hpp"
#include "npu_train/core/error.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("gradients arrive, and what a hook throws is an error of the program") {
  const auto x = torch::ones({2}, torch::device(device_under_test().c10())).requires_grad_();
  run_backward((x * 3).sum());
  CHECK(at::equal(x.grad().cpu(), torch::full({2}, 3.F)));
  x.register_hook([](const at::Tensor&) { throw std::runtime_error("a hook went wrong"); });
  const auto e = error_of([&] { run_backward((x * 3).sum()); });
  CHECK(std::string(e.what()) == "[backward] a hook went wrong");
  CHECK(e.kind() == ErrorKind::Usage);
}
