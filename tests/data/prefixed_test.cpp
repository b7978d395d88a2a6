#include "testing.hpp"

#include "npu_train/data/prefixed.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>

#include "npu_train/data/datasets.hpp"
#include "npu_train/data/generated.hpp"
#include "npu_train/data/tokens.hpp"
#include "token_ids.hpp"

using namespace npu_train;
using testing::error_of;
using testing::Ids;
using testing::ids_of;

namespace {

// Returns the samples 0 1 2 ... of five tokens each.
std::shared_ptr<const Dataset> counting_text(int64_t samples) {
  const at::Tensor all = at::arange(5 * samples + 1);
  return std::make_shared<TensorDataset>(all.narrow(0, 0, 5 * samples).view({samples, 5}),
                                         all.narrow(0, 1, 5 * samples).view({samples, 5}));
}

DatasetPair generated(ConfigNode options) {
  return builtin_datasets().make({.name = "generated_text", .options = std::move(options), .mark = {}}, "data", builtin_transforms());
}

void says(const Error& error, const std::string& words) {
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
}

}  // namespace

TEST_CASE("a prefix is followed by two inserted tokens, and only what follows them counts") {
  const PrefixedDataset data(counting_text(3), 3, 100, 101);
  CHECK(data.size() == 3);
  const auto sample = data.get(1);
  CHECK(sample.index == 1);
  CHECK(ids_of(sample.fields[0].second) == Ids{5, 6, 7, 100, 101, 8, 9});
  CHECK(ids_of(sample.fields[1].second) == Ids{-100, -100, -100, -100, 8, 9, 10});
  const auto longest = PrefixedDataset(counting_text(3), 5, 100, 101).get(0);
  CHECK(ids_of(longest.fields[0].second) == Ids{0, 1, 2, 3, 4, 100, 101});
  CHECK(ids_of(longest.fields[1].second) == Ids{-100, -100, -100, -100, -100, -100, 5});
}

TEST_CASE("random prefixes have every length, and each sample keeps its own") {
  const PrefixedDataset data(counting_text(60), 0, 100, 101), again(counting_text(60), 0, 100, 101);
  std::set<int64_t> lengths;
  for (int64_t i = 0; i < 60; ++i) {
    const auto target = ids_of(data.get(i).fields[1].second);
    lengths.insert(std::count(target.begin(), target.end(), -100) - 1);
    CHECK(target == ids_of(again.get(i).fields[1].second));
  }
  CHECK(lengths == std::set<int64_t>{1, 2, 3, 4, 5});
}

TEST_CASE("data sets of text have a prefix by their options, in samples of the same length") {
  const auto plain = generated({{"train_size", 4}, {"val_size", 2}, {"context", 8}});
  const auto pair =
      generated({{"train_size", 4}, {"val_size", 2}, {"context", 10}, {"prefix", 3}, {"gmask_token", 254}, {"bos_token", 255}});
  REQUIRE(pair.train->size() == 4);
  REQUIRE(pair.val->size() == 2);
  for (int64_t i = 0; i < 4; ++i) {
    auto text = ids_of(plain.train->get(i).fields[0].second);
    text.insert(text.begin() + 3, {254, 255});
    CHECK(ids_of(pair.train->get(i).fields[0].second) == text);
  }
  CHECK(ids_of(pair.val->get(1).fields[0].second)[4] == 255);

  testing::TempDir dir;
  const auto path = (dir.path() / "t.bin").string();
  save_tokens(path, Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const auto tokens = builtin_datasets().make(
      {.name = "tokens",
       .options = {{"train", path}, {"val_fraction", 0.5}, {"context", 6}, {"prefix", 2}, {"gmask_token", 90}, {"bos_token", 91}},
       .mark = {}},
      "data", builtin_transforms());
  CHECK(tokens.train->info().shape == Ids{6});
  REQUIRE(tokens.train->size() == 1);
  REQUIRE(tokens.val->size() == 1);
  CHECK(ids_of(tokens.val->get(0).fields[0].second) == Ids{4, 5, 90, 91, 6, 7});
  CHECK(ids_of(tokens.val->get(0).fields[1].second) == Ids{-100, -100, -100, 6, 7, 8});
  CHECK(tokens.val->where(0).find("tokens 4 to 8") != std::string::npos);
}

TEST_CASE("prefixes that are not allowed") {
  const auto of = [](const char* prefix, int64_t context = 10, int64_t gmask = 254) {
    return error_of([&] {
      generated({{"train_size", 4}, {"context", context}, {"prefix", prefix}, {"gmask_token", gmask}, {"bos_token", 255}});
    });
  };
  says(of("many"), "'many'; allowed: none, random, or a number of at least 1");
  says(of("0"), "at least 1");
  says(of("9"), "'9' with a context of 10 tokens; allowed: at most context - 2");
  says(of("random", 2), "context of 2 tokens");
  says(of("3", 10, -1), "set data.gmask_token and data.bos_token to those of the model");
  const PrefixedDataset longer(counting_text(1), 6, 100, 101);
  says(error_of([&] { longer.get(0); }), "6 tokens; sample 0 has 5 tokens");
  const auto images = std::make_shared<TensorDataset>(at::zeros({2, 3, 4, 4}), at::zeros({2}, at::kLong));
  const PrefixedDataset of_images(images, 1, 100, 101);
  says(error_of([&] { of_images.get(0); }), "a prefix is for data sets of text");
}
