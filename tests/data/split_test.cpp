#include "testing.hpp"

#include "npu_train/data/image_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "npu_train/core/log.hpp"
#include "npu_train/data/sampler.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns 7 labels of class 0, 12 of class 1 and 5 of class 2, mixed.
std::vector<int64_t> mixed_labels() {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < 12; ++i) {
    out.push_back(1);
    if (i < 7) out.push_back(0);
    if (i < 5) out.push_back(2);
  }
  return out;
}

std::map<int64_t, int64_t> counts(const std::vector<int64_t>& labels, const std::vector<int64_t>& samples) {
  std::map<int64_t, int64_t> out;
  for (const auto i : samples) ++out[labels.at(static_cast<size_t>(i))];
  return out;
}

// Checks that every sample occurs once, and that each list is ascending.
void check_division(const SplitIndices& split, size_t size) {
  CHECK(std::is_sorted(split.train.begin(), split.train.end()));
  CHECK(std::is_sorted(split.val.begin(), split.val.end()));
  std::vector<int64_t> all = split.train;
  all.insert(all.end(), split.val.begin(), split.val.end());
  std::sort(all.begin(), all.end());
  REQUIRE(all.size() == size);
  for (size_t i = 0; i < size; ++i) CHECK(all[i] == static_cast<int64_t>(i));
}

}  // namespace

TEST_CASE("val_split takes its fraction of each class and of all, by the seed") {
  const auto labels = mixed_labels();
  for (const double fraction : {0.1, 0.25, 0.5}) {
    const auto split = split_by_class(labels, {.val_split = fraction});
    check_division(split, labels.size());
    CHECK(static_cast<int64_t>(split.val.size()) == std::llround(24 * fraction));
    for (const auto& [label, size] : counts(labels, sequence(static_cast<int64_t>(labels.size())))) {
      const double expected = static_cast<double>(size) * fraction;
      auto held = counts(labels, split.val);
      CHECK(std::abs(static_cast<double>(held[label]) - expected) <= 1);
    }
  }
  const auto first = split_by_class(labels, {.val_split = 0.25});
  CHECK(split_by_class(labels, {.val_split = 0.25}).val == first.val);
  CHECK(split_by_class(labels, {.val_split = 0.25, .split_seed = 1}).val != first.val);
}

TEST_CASE("the folds are disjoint, contain all samples, and have the same share of each class") {
  const auto labels = mixed_labels();
  std::vector<int64_t> all;
  for (int fold = 1; fold <= 5; ++fold) {
    const auto split = split_by_class(labels, {.fold = std::to_string(fold) + "/5"});
    check_division(split, labels.size());
    auto held = counts(labels, split.val);
    CHECK((held[0] == 1 || held[0] == 2));
    CHECK((held[1] == 2 || held[1] == 3));
    CHECK(held[2] == 1);
    CHECK((split.val.size() == 4 || split.val.size() == 5));
    all.insert(all.end(), split.val.begin(), split.val.end());
  }
  std::sort(all.begin(), all.end());
  CHECK(all == sequence(static_cast<int64_t>(labels.size())));
}

TEST_CASE("a class keeps a sample for training, and folds warn about a class that is too small for them") {
  CHECK(split_by_class({0, 0, 0, 0, 1}, {.val_split = 0.9}).train.size() == 2);
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  split_by_class({0, 0, 0, 1}, {.fold = "1/2"});
  CHECK_MESSAGE(has(said, "class 1 has only 1 sample"), said);
}

TEST_CASE("options out of range are errors with the allowed values") {
  for (const char* fold : {"0/5", "6/5", "1/1", "2", "2/", "/5", "2/5/1", "-1/5", "a/b", "1.5/5", " 1/5"}) {
    const auto e = error_of([&] { split_by_class({0, 0, 1, 1}, {.fold = fold}); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(e.what(), "I/N"), e.what());
  }
  CHECK(has(error_of([] { split_by_class({0, 1}, {.val_split = 0.5, .fold = "1/2"}); }).what(), "one of them"));
  CHECK(error_of([] { split_by_class({0, 1}, {.val_split = 1}); }).kind() == ErrorKind::Usage);
  CHECK(has(error_of([] { split_by_class({0, 0, 0}, {.val_split = 0.1}); }).what(), "0 for validation"));
  CHECK(has(error_of([] { split_by_class({}, {.fold = "1/2"}); }).what(), "leaves 0 of 0"));
}
