#include "testing.hpp"

#include "npu_train/tools/probe/data_check.hpp"

#include <stdexcept>

#include "tools/probe/given_data.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a data set that can be read is counted by class") {
  RunConfig config;
  config.data = {.name = "generated", .options = {{"train_size", 50}, {"val_size", 20}}};
  const auto found = check_data(config);
  CHECK(found.passed());
  CHECK(found.train == 50);
  CHECK(found.val == 20);
  CHECK(found.summary == "50 + 20 images, 10 classes");
  REQUIRE(found.classes.size() == 10);
  int64_t train = 0, val = 0;
  for (const auto& c : found.classes) train += c.train, val += c.val;
  CHECK(train == 50);
  CHECK(val == 20);
  CHECK(has(to_text(found), "every sample can be read"));
}

TEST_CASE("data without a sample are not called good") {
  const DataCheck none;
  CHECK_FALSE(none.passed());
  CHECK(has(to_text(none), "there are no samples"));
}

TEST_CASE("a sample that its data set cannot name is listed like one that it cannot read") {
  struct Nameless final : Dataset {
    int64_t size() const override { return 40; }
    Sample get(int64_t index) const override { return {{}, index}; }
    std::string where(int64_t index) const override {
      if (index % 10 == 7) throw std::runtime_error("no name");  // on every thread
      return "here";
    }
  };
  const GivenData data(std::make_shared<Nameless>());
  const auto found = check_data(data.config, data.parts);
  REQUIRE(found.bad.size() == 4);
  CHECK(found.bad[1].index == 17);
  CHECK(found.bad[1].place == "");
  CHECK(has(found.bad[1].message, "no name"));
}

TEST_CASE("a configuration without data is a usage error") {
  CHECK(error_of([] { check_data(RunConfig{}); }).kind() == ErrorKind::Usage);
}

namespace {

/// A stream of 20 samples, one of which cannot be read.
class BrokenStream final : public IterableDataset {
 public:
  explicit BrokenStream(int64_t broken) : broken_(broken) {}
  DatasetInfo info() const override { return {}; }
  void begin_epoch(int64_t) override { at_ = 0; }
  std::optional<Sample> next() override {
    if (at_ == broken_) throw Error(ErrorKind::Data, "stream", "broken");
    if (at_ == 20) return std::nullopt;
    ++at_;
    return Sample{};
  }
  void shard(int64_t, int64_t) override {}
  State state() const override { return {}; }
  void load_state(const State&) override {}

 private:
  int64_t broken_, at_ = 0;
};

}  // namespace

TEST_CASE("samples with the same content are listed, whatever their classes are") {
  auto train = at::arange(12, at::kFloat).reshape({6, 2}), val = at::arange(12, 18, at::kFloat).reshape({3, 2});
  train[4].copy_(train[1]);
  train[5].copy_(train[1]);
  val[2].copy_(train[3]);
  const auto classes = [](int64_t n) { return at::arange(n, at::kLong) % 2; };
  const GivenData data(
      GivenData::pair_of(std::make_shared<TensorDataset>(train, classes(6), 2), std::make_shared<TensorDataset>(val, classes(3), 2)));
  const auto found = check_data(data.config, data.parts);
  CHECK(found.passed());
  const auto text = to_text(found);
  CHECK(has(text, "3 samples have the content of another one; 1 in both train and val"));
  CHECK(has(text, "train  1: = train 4 = train 5\n"));
  CHECK(has(text, "train  3: = val 2\n"));
  REQUIRE(found.repeated.size() == 2);
  CHECK(found.repeated[1][1].split == "val");
  train[5][1] += 1e-6;
  CHECK(check_data(data.config, data.parts).repeated.size() == 2);
  CHECK(check_data(data.config, data.parts).repeated[0].size() == 2);
}

TEST_CASE("as many samples are listed as are counted, and a stream has as many as were read") {
  for (const int64_t n : {1, 2, 5, 300}) {
    DataCheck found;
    found.train = 1000;
    for (int64_t i = 0; i < n; ++i) found.bad.push_back({"train", i, "", "broken"});
    const auto text = to_text(found);
    CHECK(has(text, std::to_string(n) + " of 1,000 samples cannot be read:\n"));
    int64_t lines = 0;
    for (size_t at = text.find(": broken\n"); at != std::string::npos; at = text.find(": broken\n", at + 1)) ++lines;
    CHECK(lines == n);
  }
  for (const int64_t broken : {-1, 0, 4}) {
    DatasetPair pair;
    pair.train_stream = std::make_shared<BrokenStream>(broken);
    const GivenData data(pair);
    const auto found = check_data(data.config, data.parts);
    CHECK(found.train == (broken < 0 ? 20 : broken + 1));
    CHECK(found.passed() == (broken < 0));
    if (broken >= 0) CHECK(has(to_text(found), "1 of " + std::to_string(broken + 1) + " samples cannot be read"));
  }
}
