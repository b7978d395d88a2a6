#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/kernels/onednn_ops.hpp"
#include "only_if.hpp"

namespace npu_train {

TEST_CASE("an operator that is not registered is nothing") { CHECK_FALSE(detail::onednn("mkldnn::no_such_operator").has_value()); }

TEST_CASE("a linear layer by oneDNN gives the value of linear" *
          testing::only_if(detail::onednn("mkldnn::_linear_pointwise").has_value(), "this libtorch has no oneDNN")) {
  const at::Tensor x = at::randn({5, 7}), w = at::randn({3, 7});
  const at::Tensor y = detail::call_boxed(*detail::onednn("mkldnn::_linear_pointwise"),
                                          {x, w, c10::IValue(), "none", c10::List<std::optional<at::Scalar>>(), ""});
  CHECK(at::allclose(y, at::linear(x, w), 1e-5, 1e-6));
}

}  // namespace npu_train
