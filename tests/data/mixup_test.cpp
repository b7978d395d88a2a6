#include "testing.hpp"

#include "npu_train/data/mixup.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns four images, number i filled with the value i; labels 0 to 3.
Batch four(int64_t index, bool channels_last = false) {
  at::Tensor input = at::zeros({4, 2, 8, 6});
  for (int64_t i = 0; i < 4; ++i) input[i].fill_(static_cast<double>(i));
  if (channels_last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  Batch batch(input, at::arange(4, at::kLong));
  batch.epoch = 1;
  batch.index = index;
  return batch;
}

}  // namespace

TEST_CASE("mixup: pixels and targets are mixed by the same weight with the sample before") {
  const auto mix = mix_batches({1.0, 0, 5, 7});
  for (const bool last : {false, true}) {
    const Batch out = mix(four(3, last));
    REQUIRE(out.target().sizes() == at::IntArrayRef({4, 5}));
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t partner = (i + 3) % 4;
      const double lambda = out.target()[i][i].item<double>();
      CHECK(std::abs(out.target()[i][partner].item<double>() - (1 - lambda)) < 1e-6);
      const double expected = lambda * static_cast<double>(i) + (1 - lambda) * static_cast<double>(partner);
      CHECK(std::abs(out.input()[i].min().item<double>() - expected) < 1e-5);
      CHECK(std::abs(out.input()[i].max().item<double>() - expected) < 1e-5);
    }
  }
}

TEST_CASE("cutmix: a box of the sample before, and targets by its area") {
  const auto mix = mix_batches({0, 1.0, 4, 7});
  for (int64_t index = 0; index < 20; ++index) {
    for (const bool last : {false, true}) {
      const Batch out = mix(four(index, last));
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t partner = (i + 3) % 4;
        const double share = out.input()[i][0].eq(static_cast<double>(partner)).sum().item<double>() / 48.0;
        CHECK(std::abs(out.target()[i][partner].item<double>() - share) < 1e-6);
        CHECK(out.input()[i][1].eq(out.input()[i][0]).all().item<bool>());
      }
    }
  }
}

TEST_CASE("the mix follows seed, epoch and number of the batch") {
  const auto mix = mix_batches({0.4, 1.0, 4, 7}), again = mix_batches({0.4, 1.0, 4, 7}), other = mix_batches({0.4, 1.0, 4, 8});
  int same = 0;
  for (int64_t index = 0; index < 10; ++index) {
    CHECK(mix(four(index)).input().equal(again(four(index)).input()));
    same += mix(four(index)).target().equal(other(four(index)).target()) ? 1 : 0;
  }
  CHECK(same < 3);
}

TEST_CASE("padding stays apart") {
  Batch batch = four(2);
  batch.size = 3;
  const Batch out = mix_batches({1.0, 0, 4, 7})(batch);
  CHECK(out.input()[3].eq(3.0).all().item<bool>());
  CHECK(out.target()[3][3].item<double>() == 1.0);
  CHECK(out.target()[0][2].item<double>() + out.target()[0][0].item<double>() == doctest::Approx(1.0));
}

TEST_CASE("Beta has its mean and spread") {
  for (const double alpha : {0.2, 1.0, 2.5}) {
    Philox rng(11);
    double sum = 0, squares = 0;
    for (int i = 0; i < 20000; ++i) {
      const double value = draw_beta(alpha, rng);
      REQUIRE((value >= 0 && value <= 1));
      sum += value;
      squares += value * value;
    }
    const double mean = sum / 20000, variance = squares / 20000 - mean * mean;
    CHECK(std::abs(mean - 0.5) < 0.01);
    CHECK(std::abs(variance - 0.25 / (2 * alpha + 1)) < 0.005);
  }
}

TEST_CASE("impossible mixes are refused") {
  CHECK(error_of([] { mix_batches({-1, 0, 4, 7}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { mix_batches({1, 0, 0, 7}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { mix_batches({1, 0, 3, 7})(four(0)); }).kind() == ErrorKind::Data);
  CHECK(error_of([] { mix_batches({1, 0, 4, 7})(Batch(at::zeros({4, 2}), at::arange(4, at::kLong))); }).kind() == ErrorKind::Usage);
}
