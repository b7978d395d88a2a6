#include "testing.hpp"

#include "npu_train/data/dataset.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("tensors become samples by their first dimension") {
  const TensorDataset data(at::arange(24, at::kFloat).view({4, 2, 3}), at::tensor({0, 2, 1, 2}, at::kLong));
  CHECK(data.size() == 4);
  CHECK(data.info().num_classes == 3);
  CHECK(data.info().shape == std::vector<int64_t>{2, 3});
  const Sample sample = data.get(2);
  CHECK(sample.index == 2);
  CHECK(sample.fields[0].first == "input");
  CHECK(sample.fields[0].second[1][2].item<float>() == 17.0f);
  CHECK(sample.fields[1].second.item<int64_t>() == 1);
}

TEST_CASE("tensors that do not fit are refused") {
  CHECK(error_of([] { TensorDataset(at::ones({4, 2}), at::ones({3})); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { TensorDataset(at::ones({4, 2}), at::Tensor()); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { TensorDataset(at::scalar_tensor(1.0f), at::scalar_tensor(1.0f)); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { TensorDataset(at::ones({2, 2}), at::ones({2})).get(2); }).kind() == ErrorKind::Usage);
}

TEST_CASE("labels outside the classes are refused with the sample") {
  const auto error = error_of([] { TensorDataset(at::ones({3, 2}), at::tensor({0, 5, 1}, at::kLong), 4); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(std::string(error.what()).find("target 1 is 5; classes are 0 to 3") != std::string::npos);
  CHECK(error_of([] { TensorDataset(at::ones({2, 2}), at::tensor({0, -1}, at::kLong), 4); }).kind() == ErrorKind::Data);
  CHECK(TensorDataset(at::ones({2, 2}), at::tensor({1, -1}, at::kLong)).info().num_classes == 0);  // -1 is not a class number
}

TEST_CASE("floating targets are no classes") { CHECK(TensorDataset(at::ones({4, 2}), at::ones({4, 1})).info().num_classes == 0); }
