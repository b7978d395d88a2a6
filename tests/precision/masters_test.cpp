#include "npu_train/precision/masters.hpp"

#include <ATen/ops/rand.h>
#include <doctest/doctest.h>

#include "npu_train/core/error.hpp"

TEST_CASE("a master has the fp32 memory of a parameter, whose tensor is rounded in place") {
  const auto weight = at::rand({3, 5}).set_requires_grad(true);
  weight.mutable_grad() = at::rand({3, 5});
  const auto before = weight.detach().clone();
  const void* memory = weight.data_ptr();
  const auto master = npu_train::with_master({.name = "weight", .value = weight, .group = 1}, at::kBFloat16);
  CHECK(master.name == "weight");
  CHECK(master.group == 1);
  CHECK(master.value.data_ptr() == memory);
  CHECK(master.value.equal(before));
  CHECK(master.value.requires_grad());
  CHECK(master.computed.is_same(weight));
  CHECK((weight.scalar_type() == at::kBFloat16));
  CHECK(weight.detach().equal(before.to(at::kBFloat16)));
  CHECK(weight.requires_grad());
  CHECK_FALSE(weight.grad().defined());

  for (const auto& other : {weight, before})  // the first is bf16, the second requires no gradient
    try {
      npu_train::with_master({.name = "other", .value = other}, at::kBFloat16);
      FAIL("no error");
    } catch (const npu_train::Error& e) {
      CHECK((e.kind() == npu_train::ErrorKind::Usage));
    }
}
