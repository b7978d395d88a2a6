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

TEST_CASE("resizing in fixed point is exact integer arithmetic on every instruction set") {
  for (const auto& [name, kernels] : testing::all_instruction_sets(detail::image_kernels)) {
    CAPTURE(name);
    for (const int64_t n : testing::row_lengths()) {
      testing::Numbers numbers(static_cast<uint64_t>(n));
      const int64_t stride = 6, width = 2 * n + stride;
      const auto src = testing::draw_bytes(numbers, 4 * width * stride);
      std::vector<int32_t> first, count, weights;
      for (int64_t x = 0; x < n; ++x) {
        first.push_back(static_cast<int32_t>(2 * x));
        count.push_back(static_cast<int32_t>(1 + numbers.bits() % stride));
        for (int64_t k = 0; k < stride; ++k)  // weights of up to 1.4 in all, some negative, as in a cubic filter
          weights.push_back(static_cast<int32_t>(numbers.bits() % 1400000) - (k % 3 == 2 ? 1000000 : 100000));
      }
      const auto byte_of = [](int64_t sum) { return static_cast<uint8_t>(std::clamp<int64_t>((sum + (1 << 21)) >> 22, 0, 255)); };
      std::vector<uint8_t> got(static_cast<size_t>(4 * n)), wanted;
      for (int64_t i = 0; i < 4 * n; ++i) {
        int64_t sum = 0;
        for (int64_t k = 0; k < count[i / 4]; ++k) sum += int64_t{weights[i / 4 * stride + k]} * src[(first[i / 4] + k) * 4 + i % 4];
        wanted.push_back(byte_of(sum));
      }
      kernels->round_columns(src.data(), first.data(), count.data(), weights.data(), stride, n, got.data());
      CHECK(got == wanted);
      std::vector<uint8_t> row(static_cast<size_t>(n)), wanted_row;
      for (int64_t i = 0; i < n; ++i) {
        int64_t sum = 0;
        for (int64_t k = 0; k < stride; ++k) sum += int64_t{weights[k]} * src[k * (n + 3) + i];
        wanted_row.push_back(byte_of(sum));
      }
      kernels->round_rows(src.data(), n + 3, n, weights.data(), stride, row.data());
      CHECK(row == wanted_row);
    }
  }
}

}  // namespace npu_train
