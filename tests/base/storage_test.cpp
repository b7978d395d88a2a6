#include "testing.hpp"

#include "npu_train/base/storage.hpp"

#include <ATen/ops/ones.h>

using namespace npu_train;

TEST_CASE("a tensor and its views have one storage, copies their own") {
  const auto t = at::ones({2, 3});
  CHECK(storage_of(t) != nullptr);
  CHECK(storage_of(t) == storage_of(t.t()));
  CHECK(storage_of(t) == storage_of(t[1].detach()));
  CHECK(storage_of(t) == storage_of(t.expand({4, 2, 3})));
  CHECK(storage_of(t) != storage_of(t.clone()));
}

TEST_CASE("the same elements are those of one memory in one order, dtype and shape") {
  const auto t = at::ones({2, 2});
  CHECK(same_elements(t, t));
  CHECK(same_elements(t, t.detach()));
  CHECK_FALSE(same_elements(t, t.clone()));
  CHECK_FALSE(same_elements(t, t.t()));
  CHECK_FALSE(same_elements(t, t.view({4})));
  CHECK_FALSE(same_elements(t[0], t[1]));
  CHECK_FALSE(same_elements(t, t.view(at::kInt)));
  CHECK_FALSE(same_elements(at::Tensor(), at::Tensor()));
}

TEST_CASE("what has no memory of its own has no storage") {
  CHECK(storage_of(at::Tensor()) == nullptr);
  CHECK(storage_of(at::ones({2, 2}).to_sparse()) == nullptr);
}
