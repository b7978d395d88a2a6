#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/trace/tensors_of.hpp"

using npu_train::detail::tensors_of;

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
