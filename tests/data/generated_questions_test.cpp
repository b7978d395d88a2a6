#include "testing.hpp"

#include "npu_train/data/generated_questions.hpp"

#include <map>

#include "npu_train/data/token_text.hpp"

using namespace npu_train;
using namespace npu_train::testing;

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
