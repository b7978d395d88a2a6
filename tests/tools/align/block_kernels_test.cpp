#include "testing.hpp"

#include "block_digests.hpp"
#include "instruction_sets.hpp"

namespace npu_train {
namespace {

template <class T>
void check_bits() {
  for (const auto& [name, kernels] : testing::all_instruction_sets(detail::block_kernels<T>)) {
    CAPTURE(name);
    CHECK(testing::has_recorded_bits(*kernels));
  }
}

}  // namespace

TEST_CASE("every instruction set of this machine gives the recorded bits of the sums over blocks") {
  check_bits<float>();
  check_bits<double>();
}

}  // namespace npu_train
