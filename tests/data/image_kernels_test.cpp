#include "testing.hpp"

#include "image_digests.hpp"

namespace npu_train {

TEST_CASE("the loops over pixels give the recorded bits") { CHECK(testing::has_recorded_bits(detail::image_kernels())); }

}  // namespace npu_train
