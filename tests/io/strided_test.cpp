#include "testing.hpp"

#include "io/tensors/strided.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <utility>
#include <vector>

using namespace npu_train;

TEST_CASE("elements of every size are gathered row-major, from any strides and in pieces") {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> layouts = {
      {{}, {}}, {{7}, {3}}, {{3, 4}, {1, 3}}, {{2, 3, 4}, {0, 5, 1}}, {{2, 1, 3, 2}, {30, 100, 2, 9}}};
  for (const auto type : {at::kByte, at::kShort, at::kFloat, at::kDouble}) {
    const auto memory = at::arange(1, 61).to(type);
    for (const auto& [sizes, strides] : layouts) {
      CAPTURE(c10::elementSize(type));
      CAPTURE(sizes.size());
      const auto expected = at::as_strided(memory, sizes, strides);
      for (const int64_t piece : {1, 5, 24}) {
        auto out = at::empty(sizes, type);
        auto* to = static_cast<char*>(out.mutable_data_ptr());
        for (int64_t first = 0; first < out.numel(); first += piece)
          npu_train::detail::gather(memory.const_data_ptr(), sizes, strides, out.element_size(), first,
                                    std::min(piece, out.numel() - first), to + first * static_cast<int64_t>(out.element_size()));
        CHECK(at::equal(out, expected));
      }
    }
  }
}
