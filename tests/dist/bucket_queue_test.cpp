// The order of messages between the first ranks of groups, when they arrive in another order than they were sent.
#include "testing.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/bucket_queue.hpp"
#include "npu_train/dist/options.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::Bucket;
using npu_train::detail::BucketQueue;

namespace {

// The collectives that the first of two ranks has begun, and whether the messages of the other one have arrived.
struct Begun {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<bool>> arrived;

  std::unique_ptr<Collective> add(const std::string& name, const at::Tensor& received) {
    struct Waiting final : Collective {
      explicit Waiting(std::shared_ptr<bool> arrived) : arrived(std::move(arrived)) {}
      bool done() override { return *arrived; }
      void wait() override { *arrived = true; }
      std::shared_ptr<bool> arrived;
    };
    received.zero_();
    names.push_back(str_cat(name, " ", received.nbytes()));
    arrived.push_back(std::make_shared<bool>(false));
    return std::make_unique<Waiting>(arrived.back());
  }
};

class FirstRank final : public ProcessGroup {
 public:
  FirstRank(Begun& begun, int size) : begun_(begun), size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override {
    return std::make_shared<FirstRank>(begun_, static_cast<int>(ranks.size()));
  }
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& /*in*/) override { return begun_.add("send", out); }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override { return begun_.add("all_reduce", tensor); }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& /*in*/) override { return begun_.add("gather", out); }
  std::vector<std::string> gather(const std::string& /*call*/, const std::string& own) override { return {2, own}; }
  void broadcast(const at::Tensor& /*tensor*/) override {}
  void main_first(const std::function<void()>& work) override { work(); }
  void abandon() noexcept override {}

 private:
  Begun& begun_;
  int size_;
};

}  // namespace

TEST_CASE("between groups, a bucket is not gathered before an earlier one, also if a bucket that is not compressed is between them") {
  ParameterSet parameters;
  const auto add = [&](const char* name, int64_t numel, at::ScalarType type) {
    parameters.add({.name = name, .value = at::zeros({numel}, type).requires_grad_(true)});
    parameters[parameters.size() - 1].value.mutable_grad() = at::ones({numel}, type);
  };
  add("large", 500, at::kFloat);
  add("double", 65, at::kDouble);
  add("small", 100, at::kFloat);
  Begun begun;
  const auto group = std::make_shared<FirstRank>(begun, 2);
  const npu_train::detail::ShardGroups shards(group, 2);
  const npu_train::detail::RankGroups groups(*group, 1);
  const Bucket::Travel travel{.compression = DistOptions{.compression = "int8"}.compressed()};
  std::vector<Bucket> buckets;
  buckets.reserve(parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    auto layout =
        npu_train::detail::flat_layout(parameters.filter([&](const Parameter& one) { return one.name == parameters[p].name; }), 2, 1 << 20);
    REQUIRE(layout.size() == 1);
    layout[0].pieces[0].parameter = p;
    buckets.emplace_back(std::move(layout[0]), parameters, shards, groups, travel, Sharding::None);
    buckets.back().deliver(0);
  }
  BucketQueue queue;
  queue.set({.ordered = false, .early = true, .in_flight = 0});
  queue.send_complete(buckets, {});
  REQUIRE(begun.names.size() == 3);
  CHECK(begun.names[0].starts_with("send"));
  CHECK(begun.names[1].starts_with("all_reduce"));
  CHECK(begun.names[2].starts_with("send"));

  *begun.arrived[1] = *begun.arrived[2] = true;
  queue.send_complete(buckets, {});
  CHECK(begun.names.size() == 3);  // the first bucket has not arrived
  *begun.arrived[0] = true;
  queue.send_complete(buckets, {});
  REQUIRE(begun.names.size() == 5);
  CHECK(begun.names[3] == "gather" + begun.names[0].substr(4));
  CHECK(begun.names[4] == "gather" + begun.names[2].substr(4));
}
