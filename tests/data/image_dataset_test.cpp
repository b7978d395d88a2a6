#include "testing.hpp"

#include "npu_train/data/image_dataset.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {
DatasetInfo two_by_two() {
  DatasetInfo info;
  info.num_classes = 2;
  info.shape = {1, 2, 2};
  return info;
}
}  // namespace

TEST_CASE("images in memory are not copied; get returns bytes and the label") {
  const MemoryImages data({1, 2, 3, 4, 5, 6, 7, 8}, {1, 0}, two_by_two());
  CHECK(data.size() == 2);
  CHECK((data.image(1).pixels.plane(0) == data.pixels(1)));
  const Sample sample = data.get(1);
  CHECK((sample.fields[0].second.scalar_type() == at::kByte));
  CHECK((sample.fields[0].second.sizes() == at::IntArrayRef({1, 2, 2})));
  CHECK(sample.fields[0].second[0][1][0].item<int>() == 7);
  CHECK(sample.fields[1].second.item<int64_t>() == 0);
}

TEST_CASE("what does not fit is refused") {
  CHECK(error_of([] { MemoryImages({1, 2, 3}, {0}, two_by_two()); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { MemoryImages({1, 2, 3, 4}, {2}, two_by_two()); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { MemoryImages({1, 2, 3, 4}, {0}, two_by_two()).image(1); }).kind() == ErrorKind::Usage);
}
