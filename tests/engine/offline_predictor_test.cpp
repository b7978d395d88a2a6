#include "testing.hpp"

#include "npu_train/engine/offline_predictor.hpp"

#include <ATen/ATen.h>

#include <fstream>

#include "data/images.hpp"
#include "environment_variable.hpp"

using namespace npu_train;
using namespace npu_train::testing;

// Uses tests/fake_ascendcl, in which output [n, k] is the mean of channel k % 3 of image n, plus k.
TEST_CASE("files in batches, the last one padded; with and without AIPP; what is no classifier") {
  const TempDir dir;
  const EnvironmentVariable library("NPU_TRAIN_ASCENDCL", std::string(NPU_TRAIN_BINARY_DIR) + "/tests/fake_ascendcl");
  const auto om = [&](const std::string& text) {
    std::ofstream(dir / "m.om") << text;
    return OfflineModel(dir / "m.om");
  };
  std::vector<std::string> paths;
  std::vector<at::Tensor> expected;
  const auto preparation = ImagePreparation::of_imagenet(28);
  for (int64_t i = 0; i < 5; ++i) {
    paths.push_back((dir / ("a" + std::to_string(i) + ".png")).string());
    write_bytes(paths.back(), to_png(rough(30 + 3 * i, 60 - i)));
    const auto mean = preparation.read(paths.back()).mean(at::IntArrayRef({1, 2}));
    expected.push_back(at::cat({mean, mean.slice(0, 0, 1)}) + at::arange(4));
  }
  const auto logits = at::stack(expected);
  const auto close = [&](const at::Tensor& found, double tolerance) {
    return found.scalar_type() == at::kFloat && found.sizes() == logits.sizes() && at::allclose(found, logits, tolerance, tolerance);
  };
  OfflinePredictor two_or_four(om("input x 0 -1 3 28 28\noutput y 0 -1 4\nbatches 2 4\n"), preparation);
  CHECK(two_or_four.classes() == 4);
  CHECK(close(two_or_four.logits(paths), 1e-5));
  CHECK(two_or_four.logits({}).sizes() == at::IntArrayRef({0, 4}));
  CHECK(close(OfflinePredictor(om("input x 1 3 3 28 28\noutput y 1 3 4\n"), preparation).logits(paths), 5e-3));
  const char* const aipp = "input x 1 2 3 28 28\noutput y 0 2 4\naipp 123.675 116.28 103.53 0.0171247538 0.0175070028 0.0174291939\n";
  OfflinePredictor bytes(om(aipp), preparation);
  CHECK(images_of(bytes.model()).aipp);
  CHECK(close(bytes.logits(paths), 1e-4));

  const auto refused = [&](const std::string& text) {
    const auto e = error_of([&] { OfflinePredictor(om(text), preparation).logits(paths); });
    CHECK(e.kind() == ErrorKind::Data);
    return std::string(e.what());
  };
  CHECK(has(refused("input x 0 1 1 28 28\noutput y 0 1 4\n"), "float32 [batch, 1, 28, 28]; supported: one input of RGB images"));
  CHECK(has(refused("input x 4 1 3 28 28\noutput y 0 1 4\n"), "uint8 [batch, 3, 28, 28]; supported"));
  CHECK(has(refused("input x 0 1 3 28 28\noutput y 3 1 4\n"), "its first output is int32 [batch, 4]; a classifier has"));
  CHECK(has(refused("input x 0 1 3 28 20\noutput y 0 1 4\n"), "has 28 x 28 pixels after the transforms; "));
}
