#include "testing.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "npu_train/core/seed.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/generated.hpp"
#include "npu_train/data/tokens.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("images depend only on seed and number, with balanced classes") {
  const auto few = generate_shapes(30, 5), more = generate_shapes(60, 5), other = generate_shapes(30, 6);
  CHECK(std::equal(few.pixels(0), few.pixels(0) + 30 * few.image_bytes(), more.pixels(0)));
  CHECK(!std::equal(few.pixels(0), few.pixels(0) + 30 * few.image_bytes(), other.pixels(0)));
  std::vector<int> counts(10);
  for (const int64_t label : more.labels()) ++counts[label];
  CHECK(counts == std::vector<int>(10, 6));
  CHECK(few.info().class_names.size() == 10);
  CHECK(error_of([] { generate_shapes(0, 1); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the shape covers a part of the image in another colour, light on dark and dark on light") {
  ShapeStyle clean;
  clean.noise = 0;
  clean.shift = 0;
  const auto set = generate_shapes(200, 9, clean);
  int lighter = 0, discs = 0;
  for (int64_t i = 0; i < set.size(); ++i) {
    // Class 0 is a disc in the middle, so that the centre and the corner show the two colours.
    if (set.labels()[i] != 0) continue;
    const Image image = set.image(i).pixels;
    const auto brightness = [&](int y, int x) { return 0.299 * image.at(0, y, x) + 0.587 * image.at(1, y, x) + 0.114 * image.at(2, y, x); };
    CHECK(std::abs(brightness(16, 16) - brightness(1, 1)) > 0.3 * 255);
    lighter += brightness(16, 16) > brightness(1, 1) ? 1 : 0;
    ++discs;
  }
  CHECK(discs == 20);
  CHECK((lighter > 3 && lighter < 17));
}

TEST_CASE("the style has bounds") {
  CHECK(error_of([] { bind<GeneratedOptions>(parse_yaml("style: {noise: 2}", "t"), "data"); }).kind() == ErrorKind::Usage);
  CHECK(bind<GeneratedOptions>(parse_yaml("style: {noise: 0.2}\ntrain_size: 64", "t"), "data").style.noise == 0.2);
  ShapeStyle upside;
  upside.min_scale = 0.5;
  CHECK(error_of([&] { generate_shapes(10, 1, upside); }).kind() == ErrorKind::Usage);
}

namespace {

DatasetPair open_questions(ConfigNode options) {
  return builtin_datasets().make({.name = "generated_questions", .options = std::move(options), .mark = {}}, "data", builtin_transforms());
}

}  // namespace

TEST_CASE("captions of shapes name what they show, and depend on the seed alone") {
  const auto open = [](ConfigNode options) {
    return builtin_datasets().make({.name = "generated_captions", .options = std::move(options), .mark = {}}, "data", builtin_transforms());
  };
  const auto pair = open({{"train_size", 100}, {"val_size", 10}}), other = open({{"train_size", 100}, {"val_size", 10}, {"data_seed", 2}});
  const auto& data = dynamic_cast<const CaptionedImages&>(*pair.train);
  CHECK_FALSE(data.questions().has_value());
  const auto names = generate_shapes(1, 1).info().class_names;
  std::map<std::string, int> beginnings;
  int differ = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    const auto text = text_of_bytes(data.caption(i));
    const auto& shape = names[static_cast<size_t>(data.image(i).label)];
    REQUIRE(text.ends_with(shape));
    ++beginnings[text.substr(0, text.size() - shape.size())];
    CHECK(data.caption(i).back() == 0);
    differ += dynamic_cast<const CaptionedImages&>(*other.train).caption(i) != data.caption(i) ? 1 : 0;
  }
  CHECK(beginnings.size() == 3);
  CHECK(differ > 50);
  CHECK(dynamic_cast<const CaptionedImages&>(*open({{"train_size", 8}, {"val_size", 1}}).train).caption(7) == data.caption(7));
}

TEST_CASE("questions about shapes: their answers are right, and depend on the seed alone") {
  const auto pair = open_questions({{"train_size", 400}, {"val_size", 10}});
  const auto& data = dynamic_cast<const CaptionedImages&>(*pair.train);
  CHECK(pair.summary() == "400 + 10 images");
  const auto names = generate_shapes(1, 1).info().class_names;
  std::map<std::string, int> kinds;
  for (int64_t i = 0; i < data.size(); ++i) {
    const auto tokens = data.caption(i);
    const auto prompt = data.prompt(i);
    for (int64_t k = 0; k < 16; ++k) CHECK(tokens[static_cast<size_t>(k)] == 255);
    const auto question = text_of_bytes({tokens.begin() + 16, tokens.begin() + prompt});
    CHECK(tokens.back() == 0);
    const auto answer = text_of_bytes({tokens.begin() + prompt, tokens.end()});
    const auto& shape = names[static_cast<size_t>(data.image(i).label)];
    if (question == "what is it?\n") {
      CHECK(answer == shape);
      ++kinds["name"];
    } else {
      CHECK(answer == (question == "is it a " + shape + "?\n" ? "yes" : "no"));
      ++kinds[answer];
    }
  }
  CHECK(kinds["name"] > 150);
  CHECK(kinds["yes"] > 60);
  CHECK(kinds["no"] > 60);
  const auto again = open_questions({{"train_size", 20}, {"val_size", 10}});
  CHECK(dynamic_cast<const CaptionedImages&>(*again.train).caption(7) == data.caption(7));
  const auto other = open_questions({{"train_size", 400}, {"val_size", 10}, {"data_seed", 2}});
  int differ = 0;
  for (int64_t i = 0; i < 400; ++i) differ += dynamic_cast<const CaptionedImages&>(*other.train).caption(i) != data.caption(i) ? 1 : 0;
  CHECK(differ > 200);
}

TEST_CASE("the tokens of a batch are followed by its targets, which the answers alone have") {
  const auto pair = open_questions({{"train_size", 40}, {"val_size", 10}, {"batch_size", 8}, {"num_workers", "0"}});
  const auto& data = dynamic_cast<const CaptionedImages&>(*pair.train);
  for (const bool padded : {false, true}) {
    LoaderOptions runtime;
    if (padded) runtime.last_batch = LastBatch::Pad;
    auto loader = train_loader(pair, runtime);
    loader.begin_epoch(0);
    const auto batch = *loader.next();
    CHECK((batch.input().sizes() == at::IntArrayRef({8, 3, 32, 32})));
    CHECK((batch.at("tokens").sizes() == batch.target().sizes()));
    if (padded) CHECK(batch.target().size(1) == 63);
    const auto tokens = batch.at("tokens").accessor<int64_t, 2>(), targets = batch.target().accessor<int64_t, 2>();
    for (int64_t i = 0; i < 8; ++i) {
      const auto text = data.caption(batch.ids[static_cast<size_t>(i)]);
      const auto prompt = data.prompt(batch.ids[static_cast<size_t>(i)]), size = static_cast<int64_t>(text.size());
      for (int64_t k = 0; k < tokens.size(1); ++k) {
        CHECK(tokens[i][k] == (k + 1 < size ? text[static_cast<size_t>(k)] : 0));
        CHECK(targets[i][k] == (k + 1 >= prompt && k + 1 < size ? text[static_cast<size_t>(k + 1)] : -100));
      }
    }
  }
}

TEST_CASE("what is refused") {
  CHECK(std::string(error_of([] {
                      open_questions({{"context", 24}});
                    }).what())
            .find("allowed: at most 24 (data.context)") != std::string::npos);
  CHECK(std::string(error_of([] { open_questions({{"mixup_alpha", 0.2}}); }).what()).find("mixup and cutmix") != std::string::npos);
  CHECK(std::string(error_of([] {
                      open_questions({{"separator", 255}});
                    }).what())
            .find("separator is the image_token") != std::string::npos);
}

TEST_CASE("the text depends on the seed alone, and a longer one continues it") {
  const auto text = generate_text(2000, 1);
  CHECK(text.size() == 2000);
  CHECK(generate_text(500, 1) == text.substr(0, 500));
  CHECK(generate_text(500, 2) != text.substr(0, 500));
  CHECK(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz. ") == std::string::npos);
  CHECK(testing::error_of([] { generate_text(-1, 1); }).kind() == ErrorKind::Usage);
}

TEST_CASE("samples of the data set are consecutive bytes with the next byte as target") {
  const auto pair =
      builtin_datasets().make({.name = "generated_text", .options = {{"train_size", 3}, {"val_size", 2}, {"context", 5}}, .mark = {}},
                              "data", builtin_transforms());
  const auto text = generate_text(16, 1);
  REQUIRE(pair.train->size() == 3);
  CHECK(pair.val->size() == 2);
  for (int64_t i = 0; i < 3; ++i) {
    const auto fields = pair.train->get(i).fields;
    for (int64_t k = 0; k < 5; ++k) {
      CHECK(fields[0].second[k].item<int64_t>() == text[static_cast<size_t>(5 * i + k)]);
      CHECK(fields[1].second[k].item<int64_t>() == text[static_cast<size_t>(5 * i + k + 1)]);
    }
  }
}
