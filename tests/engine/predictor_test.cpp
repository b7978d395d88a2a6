#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn.h>
#include <Eigen/Core>

#include <algorithm>
#include <fstream>
#include <type_traits>
#include <utility>

#include "data/images.hpp"
#include "engine/short_run.hpp"
#include "environment_variable.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("as for ImageNet: the shorter side, the centre, the normalisation; an image of the model's size is only normalised") {
  const TempDir dir;
  const auto small = (dir / "small.png").string(), wide = (dir / "wide.png").string();
  write_bytes(small, to_png(rough(28, 28)));
  write_bytes(wide, to_png(rough(32, 64)));
  const auto preparation = ImagePreparation::of_imagenet(28, {0.5, 0.25, 0}, {0.5, 1, 2});
  const auto bytes = preparation.read_bytes(small);
  CHECK((bytes.scalar_type() == at::kByte));
  REQUIRE((bytes.sizes() == at::IntArrayRef({28, 28, 3})));
  for (int64_t y = 0; y < 28; ++y)
    for (int64_t c = 0; c < 3; ++c) CHECK(bytes[y][5][c].item<int>() == rough(28, 28).at(c, y, 5));
  // 32 x 64 already has the shorter side 32 = 28 * 256 / 224, so that only its centre is cropped.
  const auto cut = preparation.read_bytes(wide);
  CHECK(cut[0][0][1].item<int>() == rough(32, 64).at(1, 2, 18));
  for (const auto& path : {small, wide}) {
    const auto values = preparation.read_bytes(path).to(at::kFloat) / 255;
    const auto expected = ((values - at::tensor({0.5F, 0.25F, 0.0F})) / at::tensor({0.5F, 1.0F, 2.0F})).permute({2, 0, 1});
    CHECK(at::allclose(preparation.read(path), expected, 1e-5, 1e-5));
  }
}

TEST_CASE("the steps as text are the same steps") {
  const TempDir dir;
  const auto path = (dir / "a.png").string();
  write_bytes(path, to_png(rough(50, 41)));
  const auto preparation = ImagePreparation::of_imagenet(28, {0.1, 0.2, 0.3}, {0.4, 0.5, 0.6});
  CHECK(preparation.steps_text() == "[{name: resize, size: 32}, {name: center_crop, size: 28}, {name: normalize}]");
  const TransformContext context{28, {0.1, 0.2, 0.3}, {0.4, 0.5, 0.6}};
  const auto same = ImagePreparation::from_text(preparation.steps_text(), context);
  CHECK(at::equal(same.read(path), preparation.read(path)));
  for (const char* text : {"[{name: no_such_step}]", "{", "5", "[{name: resize, size: x}]"})
    CHECK(error_of([&] { ImagePreparation::from_text(text, context); }).kind() == ErrorKind::Usage);
}

TEST_CASE("files that are no images") {
  const TempDir dir;
  const auto path = (dir / "a.png").string();
  write_bytes(path, {1, 2, 3});
  const auto preparation = ImagePreparation::of_imagenet(28);
  CHECK(error_of([&] { preparation.read(path); }).kind() == ErrorKind::Data);
  CHECK(error_of([&] { preparation.read_bytes((dir / "none.png").string()); }).kind() == ErrorKind::Data);
}

TEST_CASE("a checkpoint answers as the trainer did, without its data") {
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  config.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 32}, {"batch_size", 16}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 1};
  config.average = {.enabled = true, .decay = 0.5};
  config.output.dir = dir.path().string();
  Trainer trainer(config);
  const auto result = trainer.fit();
  const auto x = torch::randn({3, 3, 32, 32});
  const auto expected = trainer.predict(x);

  const auto predictor = Predictor::from_checkpoint(result.run_dir, "cpu");
  CHECK(torch::allclose(predictor(x), expected, 1e-4, 1e-5));
  CHECK(predictor.classes().size() == 10);
  const auto answers = predictor.top_answers(expected[0], 3);
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].label == expected[0].argmax().item<int64_t>());
  CHECK(answers[0].name == predictor.classes()[static_cast<size_t>(answers[0].label)]);
  CHECK(answers[0].probability >= answers[1].probability);
  // Any image becomes a square of the model's size.
  write_bytes((dir / "wide.png").string(), to_png(rough(40, 90)));
  CHECK((predictor.read_image((dir / "wide.png").string()).sizes() == at::IntArrayRef({3, 32, 32})));
  CHECK(error_of([&] { predictor.classify((dir / "none.png").string()); }).kind() == ErrorKind::Data);
}

TEST_CASE("a checkpoint of a training with a profiler and a dump answers in a program without them") {
  TempDir dir;
  auto parts = builtin_parts();
  parts.observers.add("profiler", "in place of the profiler", [] { return std::make_unique<RunObserver>(); });
  parts.observers.add_section<NoOptions>("dump", "in place of the dump", [](const NoOptions&) { return std::make_unique<RunObserver>(); });
  auto config = short_run();
  config.trainer.max_steps = 1;
  config.trainer.profiler = "simple";
  config.sections["dump"] = ConfigNode::map();
  config.output.dir = dir.path().string();
  const auto result = Trainer(config, parts).fit();
  CHECK(Predictor::from_checkpoint(result.run_dir, "cpu")(torch::zeros({1, 3, 32, 32})).sizes() == at::IntArrayRef({1, 10}));
}

TEST_CASE("weights that do not fill the model are refused") {
  TempDir dir;
  const auto model = resnet(18, {.num_classes = 5});
  save_safetensors(dir / "w.safetensors", named_state(*model.module));
  const auto file = (dir / "w.safetensors").string();
  CHECK(Predictor::from_weights("resnet18", 5, file, "cpu")(torch::zeros({1, 3, 64, 64})).sizes() == at::IntArrayRef({1, 5}));
  CHECK(error_of([&] { Predictor::from_weights("resnet18", 6, file, "cpu"); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { Predictor::from_weights("resnet34", 5, file, "cpu"); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { Predictor::from_checkpoint(dir.path().string(), "cpu"); }).kind() == ErrorKind::Checkpoint);
}

namespace {

/// A network whose outputs depend on every pixel, with the preparation of ImageNet: an image that is not 224 x 224 is resized and cropped.
Predictor predictor_of_random_weights(const TempDir& dir) {
  torch::manual_seed(3);
  const auto model = resnet(18, {.num_classes = 7});
  save_safetensors(dir / "w.safetensors", named_state(*model.module));
  return Predictor::from_weights("resnet18", 7, (dir / "w.safetensors").string(), "cpu");
}

}  // namespace

TEST_CASE("pixels in memory are answered as the file with the same ones, bit for bit") {
  TempDir dir;
  const auto predictor = predictor_of_random_weights(dir);
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{224, 224}, {224, 300}, {61, 90}, {300, 41}};
  for (const auto& [height, width] : sizes) {
    INFO("an image of ", height, " x ", width);
    const Image image = rough(height, width), with_alpha = rough(height, width, 4);
    const auto file = (dir / "a.png").string();
    write_bytes(file, to_png(image));
    const auto expected = predictor(predictor.read_image(file).unsqueeze(0));
    for (const auto order : {ChannelOrder::Rgb, ChannelOrder::Bgr}) {
      // The rows of a cv::Mat are padded if it is a part of another one.
      for (const int64_t channels : {3, 4}) {
        const ProgramPixels pixels(with_alpha, channels, ChannelLayout::Hwc, order, 5);
        CHECK(torch::equal(predictor.preparation().prepare(pixels.view), predictor.read_image(file)));
        CHECK(torch::equal(predictor.predict(pixels.view), expected));
      }
    }
    const ImageView planes{.data = image.plane(0), .height = height, .width = width, .layout = ChannelLayout::Chw};
    CHECK(torch::equal(predictor.predict(planes), expected));
    const auto answers = predictor.classify(planes, 3), of_file = predictor.classify(file, 3);
    REQUIRE(answers.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(answers[i].label == of_file[i].label);
      CHECK(answers[i].probability == of_file[i].probability);
    }
  }
}

TEST_CASE("matrices of Eigen, a decoded JPEG, and a batch of images of different sizes") {
  TempDir dir;
  const auto predictor = predictor_of_random_weights(dir);
  Eigen::Matrix<uint8_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> gray(100, 130);
  const Image pixels = rough(100, 130, 1);
  std::copy_n(pixels.plane(0), pixels.pixels(), gray.data());
  const auto view_of = [](const auto& image) {
    static_assert(std::remove_cvref_t<decltype(image)>::IsRowMajor);  // as docs/add_a_model.md checks it
    return ImageView{.data = image.data(), .height = image.rows(), .width = image.cols(), .channels = 1, .row_stride = image.outerStride()};
  };
  const auto block = gray.block(10, 20, 60, 80);
  write_bytes((dir / "gray.png").string(), to_png(pixels.crop(10, 20, 60, 80)));
  const auto expected = predictor.read_image((dir / "gray.png").string());
  CHECK(torch::equal(predictor.preparation().prepare(view_of(block)), expected));

  const auto jpeg = to_jpeg(rough(90, 70));
  write_bytes((dir / "a.jpg").string(), jpeg);
  const Image decoded = decode_image(jpeg, "a.jpg").dense(PixelOrder::Planar);
  const ImageView view{.data = decoded.plane(0), .height = 90, .width = 70, .layout = ChannelLayout::Chw};
  const auto of_file = predictor.read_image((dir / "a.jpg").string());
  CHECK(torch::equal(predictor.preparation().prepare(view), of_file));

  const auto logits = predictor.predict({view, view_of(block), view_of(gray)});
  CHECK(logits.sizes() == at::IntArrayRef({3, 7}));
  CHECK(torch::equal(logits, predictor(torch::stack({of_file, expected, predictor.preparation().prepare(view_of(gray))}))));
}

TEST_CASE("images in memory that cannot be predicted name their number in the batch") {
  TempDir dir;
  const auto predictor = predictor_of_random_weights(dir);
  const Image image = rough(30, 40);
  const ImageView good{.data = image.plane(0), .height = 30, .width = 40, .layout = ChannelLayout::Chw};
  auto bad = good;
  bad.row_stride = 39;
  const auto one = error_of([&] { predictor.predict(bad); }), third = error_of([&] { predictor.predict({good, good, bad}); });
  for (const auto* error : {&one, &third}) {
    CHECK(error->kind() == ErrorKind::Usage);
    CHECK(has(error->what(), "row_stride is 39, and a row has 40 bytes"));
  }
  CHECK_FALSE(has(one.what(), "image 0"));
  CHECK(has(third.what(), "image 2: "));
  CHECK(error_of([&] { predictor.predict(std::vector<ImageView>{}); }).kind() == ErrorKind::Usage);
}

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
