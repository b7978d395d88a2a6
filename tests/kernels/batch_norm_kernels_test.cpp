#include "testing.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "instruction_sets.hpp"
#include "norm_digests.hpp"

namespace npu_train {
namespace {

template <class T>
void check_bits() {
  for (const auto& [name, kernels] : testing::all_instruction_sets(detail::norm_kernels<T>)) {
    CAPTURE(name);
    CHECK(testing::has_recorded_bits(*kernels));
  }
}

}  // namespace

TEST_CASE("every instruction set of this machine gives the recorded bits") {
  check_bits<float>();
  check_bits<c10::BFloat16>();
  check_bits<c10::Half>();
}

TEST_CASE("NaN and infinity pass in every instruction set, and NaN through ReLU") {
  constexpr auto kFloatInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {std::nanf(""), kFloatInf, -kFloatInf, 1, -1, 2, -2, 3, -3}, zero(9, 0.0F), one(9, 1.0F);
  for (const auto& [name, kernels] : testing::all_instruction_sets(detail::norm_kernels<float>)) {
    CAPTURE(name);
    std::vector<float> y(9);
    kernels->rows_apply({1, 9}, x.data(), nullptr, {zero.data(), one.data(), zero.data()}, true, y.data());
    CHECK(std::isnan(y[0]));
    CHECK(std::isinf(y[1]));
    CHECK(y[2] == 0);
    CHECK(y[3] == 1);
    CHECK(y[4] == 0);
  }
}

}  // namespace npu_train
