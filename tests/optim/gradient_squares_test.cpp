#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/kernels/block_squares.hpp"
#include "npu_train/optim/clip.hpp"
#include "optim/gradient_squares.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

ExactSum::Limbs carried_parts(const at::Tensor& parts) {
  ExactSum::Limbs limbs;
  std::copy_n(parts.const_data_ptr<int64_t>(), limbs.size(), limbs.begin());
  return ExactSum(limbs).limbs();
}

ExactSum::Limbs squares_with(const at::Tensor& parameter, const at::Tensor& gradient) {
  ParameterSet set;
  set.add({.name = "p", .value = parameter.detach().clone(at::MemoryFormat::Preserve).set_requires_grad(true)});
  CHECK(set[0].value.strides() == parameter.strides());
  set[0].value.mutable_grad() = gradient;
  return carried_parts(squared_grad_norm(set).parts);
}

}  // namespace

TEST_CASE("blocks follow the memory of the parameter, whatever the strides of the gradient") {
  at::manual_seed(3);
  const auto parameter = at::zeros({16, 24, 3, 3}), last = parameter.contiguous(at::MemoryFormat::ChannelsLast);
  const auto gradient = at::randn({16, 24, 3, 3}), gradient_last = gradient.contiguous(at::MemoryFormat::ChannelsLast);
  auto wide = at::randn({16, 24, 3, 6});
  const auto with_gaps = wide.slice(3, 0, 6, 2);
  with_gaps.copy_(gradient);
  const auto in_order = sum_of_squares({gradient.flatten()}).limbs();
  const auto in_order_last = sum_of_squares({gradient.permute({0, 2, 3, 1}).flatten()}).limbs();
  CHECK(in_order != in_order_last);  // the last places of fp64 show how the blocks were formed
  for (const auto& g : {gradient, gradient_last, with_gaps}) {
    CHECK(squares_with(parameter, g) == in_order);
    CHECK(squares_with(last, g) == in_order_last);
  }
  const auto column = at::zeros({40, 1, 1}), values = at::randn({40, 1, 1});
  CHECK(squares_with(column, values.as_strided({40, 1, 1}, {1, 7, 9})) == sum_of_squares({values.flatten()}).limbs());
}

TEST_CASE("operators on a device give the parts of the CPU's kernels") {
  at::manual_seed(4);
  std::vector<at::Tensor> gradients;
  for (const int64_t n : {1, 64, 100, 5'000'001})
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) gradients.push_back((at::randn({n}) * 0.01).to(dtype));
  gradients.push_back(at::zeros({0}));
  CHECK(carried_parts(npu_train::detail::parts_by_operators(gradients)) == sum_of_squares(gradients).limbs());
  gradients.push_back(at::randn({70'000}, at::kDouble));
  gradients.push_back(at::full({3}, 1e100, at::kDouble));
  CHECK(carried_parts(npu_train::detail::parts_by_operators(gradients)) == sum_of_squares(gradients).limbs());
  gradients.push_back(at::full({3}, kInf));
  CHECK(norm_by_operators(npu_train::detail::parts_by_operators(gradients)).item<double>() == kInf);
  const std::vector<at::Tensor> nothing = {at::zeros({0})};
  CHECK(carried_parts(npu_train::detail::parts_by_operators(nothing)) == ExactSum().limbs());
}

TEST_CASE("shards of gradients, cut between blocks, have the norm of the entire ones") {
  at::manual_seed(5);
  auto set = example_parameters();
  set.add({.name = "large", .value = at::randn({1000}).set_requires_grad(true)});
  random_gradients(set, 6);
  const auto entire = squared_grad_norm(set);
  ParameterSet shards[2];
  for (const auto& p : set) {
    const auto flat = p.value.detach().flatten(), gradient = p.value.grad().flatten();
    const int64_t cut = gradient.numel() / 128 * 64;
    for (size_t rank = 0; rank < 2; ++rank) {
      const auto part = [&](const at::Tensor& t) { return rank == 0 ? t.slice(0, 0, cut) : t.slice(0, cut); };
      shards[rank].add({.name = p.name, .value = part(flat).clone().set_requires_grad(true)});
      shards[rank][shards[rank].size() - 1].value.mutable_grad() = part(gradient).clone();
    }
  }
  const auto sum = squared_grad_norm(shards[0]).parts + squared_grad_norm(shards[1]).parts;
  CHECK(carried_parts(sum) == carried_parts(entire.parts));
  CHECK(at::equal(norm_of({sum, entire.dtype}), grad_norm(set)));
  const double norm = clip_grad_norm_(set, 1e-3).item<double>();
  for (int rank = 0; rank < 2; ++rank) {
    const auto& other = shards[1 - rank];
    const auto reduced = clip_grad_norm_(shards[rank], 1e-3, 2, [&](at::Tensor& parts) {
      if (rank == 0) parts.add_(squared_grad_norm(other).parts);
      if (rank == 1) parts.copy_(sum);
    });
    CHECK(reduced.item<double>() == norm);
  }
  CHECK(at::equal(shards[1][4].value.grad(), set[4].value.grad().slice(0, 448)));
}

TEST_CASE("complex numbers, conjugated too, and gradients of fp64 among others") {
  at::manual_seed(6);
  const auto z = at::complex(at::randn({50}), at::randn({50}));
  const auto expected = sum_of_squares({at::view_as_real(z).flatten()}).limbs();
  CHECK(squares_with(at::zeros({50}, at::kComplexFloat), z) == expected);
  CHECK(squares_with(at::zeros({50}, at::kComplexFloat), z.conj()) == expected);
  auto set = example_parameters();
  random_gradients(set, 7);
  CHECK((squared_grad_norm(set).dtype == at::kFloat));
  auto wide = at::ones({3}, at::kDouble).set_requires_grad(true);
  wide.mutable_grad() = at::ones({3}, at::kDouble);
  set.add({.name = "wide", .value = wide});
  CHECK((squared_grad_norm(set).dtype == at::kDouble));
  CHECK((squared_grad_norm(ParameterSet{}).dtype == at::kFloat));
  CHECK(carried_parts(squared_grad_norm(ParameterSet{}).parts) == ExactSum().limbs());
}
