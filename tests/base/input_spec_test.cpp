#include "testing.hpp"

#include "npu_train/base/input_spec.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>

#include "npu_train/core/error.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

const InputSpec kTokens{.name = "tokens", .dtype = at::kLong, .shape = {"batch", {"length", 8}}, .range = {{0, 50}}};

at::Generator seeded(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

}  // namespace

TEST_CASE("an example of images, of the usual size or another one") {
  const auto spec = image_input(3, 32);
  CHECK(spec.str() == "Float [batch, 3, height (32), width (32)]");
  CHECK(spec.usual("height").value_or(0) == 32);
  CHECK_FALSE(spec.usual("batch").has_value());
  const auto batch = example_batch({spec}, {.samples = 5});
  CHECK(batch.input().sizes().vec() == std::vector<int64_t>{5, 3, 32, 32});
  CHECK(batch.size == 5);
  CHECK(batch.weight == 5);
  CHECK(batch.input().abs().max().item<float>() > 1);  // drawn from the normal distribution
  const auto larger = example_batch({spec}, {.sizes = {{"height", 64}, {"width", 48}}, .zeros = true});
  CHECK(larger.input().sizes().vec() == std::vector<int64_t>{1, 3, 64, 48});
  CHECK(larger.input().abs().max().item<float>() == 0);
  CHECK(image_input(3, 32, /*fixed=*/true).str() == "Float [batch, 3, 32, 32]");
}

TEST_CASE("several inputs, integers in their range, equal generators give equal batches") {
  const InputSpec mask{.name = "mask", .shape = {"batch", "length"}, .range = {{-1, 0}}};
  const ExampleOptions options{.samples = 4, .sizes = {{"length", 1000}}, .generator = seeded(7)};
  const auto batch = example_batch({kTokens, mask}, options);
  CHECK((batch.at("tokens").scalar_type() == at::kLong));
  CHECK(batch.at("tokens").sizes().vec() == std::vector<int64_t>{4, 1000});
  CHECK(batch.at("tokens").min().item<int64_t>() == 0);
  CHECK(batch.at("tokens").max().item<int64_t>() == 49);
  CHECK(batch.at("mask").sizes().vec() == std::vector<int64_t>{4, 1000});
  CHECK(batch.at("mask").max().item<float>() <= 0);
  CHECK(batch.at("mask").min().item<float>() >= -1);
  CHECK(batch.at("mask").min().item<float>() < -0.9f);
  auto again = options;
  again.generator = seeded(7);
  CHECK(at::equal(example_batch({kTokens, mask}, again).at("tokens"), batch.at("tokens")));
}

TEST_CASE("an example of zeros has the integers nearest to 0 that its range allows") {
  const auto value = [](double low, double high) {
    const InputSpec spec{.name = "input", .dtype = at::kLong, .shape = {2}, .range = {{low, high}}};
    const auto filled = example_batch({spec}, {.zeros = true}).input();
    CHECK(filled[0].item<int64_t>() == filled[1].item<int64_t>());
    return filled[0].item<int64_t>();
  };
  CHECK(value(0, 50) == 0);
  CHECK(value(1, 2) == 1);
  CHECK(value(-3, 4) == 0);
  CHECK(value(-3, -1) == -2);
}

TEST_CASE("what an example cannot be made of") {
  const auto message = [](const std::vector<InputSpec>& inputs, const ExampleOptions& options) {
    const auto e = error_of([&] { example_batch(inputs, options); });
    CHECK(e.kind() == ErrorKind::Usage);
    return std::string(e.what());
  };
  CHECK(has(message({}, {}), "fill Model::inputs"));
  CHECK(has(message({image_input(3, 0)}, {}), "nothing says its height"));
  CHECK(has(message({image_input(3, 32)}, {.samples = 0}), "samples is 0"));
  CHECK(has(message({image_input(3, 32)}, {.sizes = {{"hight", 3}}}), "no input has a free size 'hight'"));
  CHECK(has(message({image_input(3, 32, true)}, {.sizes = {{"height", 3}}}), "no input has a free size 'height'"));
  auto unknown = kTokens;
  unknown.range.reset();
  CHECK(has(message({unknown}, {}), "InputSpec::range"));
}
