// Checks that four real processes over Gloo make the calls of the plan. Each process runs the second test case of this program.
#include "testing.hpp"

#include <cstdio>
#include <cstdlib>

#include "dist/rank_processes.hpp"
#include "only_if.hpp"
#include "tools/plan/recorded_calls.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using Kind = StepCall::Kind;

constexpr int kRealRanks = 4;

struct RealCase {
  std::string strategy;
  int64_t micro_batches;
  Options options;
};

const std::vector<RealCase> kRealCases = {
    {"ddp", 1, {}},
    {"ddp", 1, {{"compression", "topk:0.05+int8"}}},
    {"ddp", 2, {{"group_size", "2"}}},
    {"zero1", 1, {{"group_size", "3"}}},
    {"zero3", 2, {{"group_size", "2"}}},
    {"ddp", 1, {{"group_size", "2"}, {"compression", "int8"}}},
    {"ddp", 1, {{"group_size", "1"}, {"compression", "powersgd:2"}}},
};

// Records the calls and passes them on.
class WitnessGroup final : public ProcessGroup {
 public:
  WitnessGroup(std::shared_ptr<ProcessGroup> real, std::shared_ptr<Recorded> seen) : real_(std::move(real)), seen_(std::move(seen)) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  int local_size() const override { return real_->local_size(); }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override {
    return std::make_shared<WitnessGroup>(real_->subgroup(ranks), seen_);
  }
  std::string transport(const c10::Device& device) override { return real_->transport(device); }
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    seen_->note(Kind::AllToAll, in, size());
    return real_->all_to_all(out, in);
  }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override {
    seen_->note(Kind::AllReduce, tensor, size());
    return real_->all_reduce(tensor);
  }
  std::unique_ptr<Collective> reduce(const at::Tensor& tensor) override {
    seen_->note(Kind::Reduce, tensor, size());
    return real_->reduce(tensor);
  }
  std::unique_ptr<Collective> distribute(const at::Tensor& tensor) override {
    seen_->note(Kind::Distribute, tensor, size());
    return real_->distribute(tensor);
  }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override {
    seen_->note(Kind::AllGather, out, size());
    return real_->all_gather(out, in);
  }
  std::vector<std::string> gather(const std::string& call, const std::string& own) override {
    seen_->note_agreement(own);
    return real_->gather(call, own);
  }
  void broadcast(const at::Tensor& tensor) override { real_->broadcast(tensor); }
  void main_first(const std::function<void()>& work) override { real_->main_first(work); }
  void does(std::string work) override { real_->does(std::move(work)); }
  void abandon() noexcept override { real_->abandon(); }

 private:
  std::shared_ptr<ProcessGroup> real_;
  std::shared_ptr<Recorded> seen_;
};

std::string line_of(size_t number, const Recorded& calls) { return "case " + std::to_string(number) + ": " + calls.text() + "\n"; }

}  // namespace

TEST_CASE("real ranks make the planned calls") {
  const auto ranks =
      run_ranks(kRealRanks, {"env", "PLAN_RANK=1", NPU_TRAIN_BINARY_DIR "/tests/test_plan", "--test-case=one of several real ranks"});
  for (int r = 0; r < kRealRanks; ++r) {
    CAPTURE(r);
    const auto& result = ranks[static_cast<size_t>(r)];
    REQUIRE_MESSAGE(result.ok(), result.output);
    for (size_t i = 0; i < kRealCases.size(); ++i) {
      const auto& c = kRealCases[i];
      const auto config = run_of(c.strategy, c.micro_batches, c.options);
      const Placement placement{
          .strategy = c.strategy, .ranks = kRealRanks, .group_size = group_size_of(config.dist, kRealRanks, kRealRanks)};
      // ranks in a smaller group are left out
      if (placement.group_size > 0 && (r / placement.group_size + 1) * placement.group_size > kRealRanks) continue;
      const auto line = line_of(i, planned(config, placement, r));
      CAPTURE(line);
      CAPTURE(result.output);
      CHECK(has(result.output, line));
    }
  }
}

TEST_CASE("one of several real ranks" * only_if(std::getenv("PLAN_RANK") != nullptr, "another case starts it, as processes")) {
  for (size_t i = 0; i < kRealCases.size(); ++i) {
    const auto& c = kRealCases[i];
    const auto seen = recorded(run_of(c.strategy, c.micro_batches, c.options), [](auto recorder, const DistOptions& dist) {
      return std::make_shared<WitnessGroup>(ProcessGroup::from_environment(dist), recorder);
    });
    CHECK_FALSE(seen.calls.empty());
    std::printf("%s", line_of(i, seen).c_str());
  }
}
