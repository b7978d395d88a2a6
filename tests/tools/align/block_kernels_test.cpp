#include "testing.hpp"

#include "block_digests.hpp"

namespace npu_train {

TEST_CASE("the sums over blocks give the recorded bits") {
  CHECK(testing::has_recorded_bits(detail::block_kernels<float>()));
  CHECK(testing::has_recorded_bits(detail::block_kernels<double>()));
}

}  // namespace npu_train
