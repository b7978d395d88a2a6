#include "testing.hpp"

#include "image_digests.hpp"
#include "instruction_sets.hpp"

namespace npu_train {

TEST_CASE("every instruction set of this machine gives the recorded bits of the loops over pixels") {
  for (const auto& [name, kernels] : testing::all_instruction_sets(detail::image_kernels)) {
    CAPTURE(name);
    CHECK(testing::has_recorded_bits(*kernels));
  }
}

}  // namespace npu_train
