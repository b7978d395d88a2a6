// Reductions between devices, with a stand-in for NCCL and HCCL: ranks are threads, and each records its calls.
#include "npu_train/dist/gradient_reducer.hpp"

#include "testing.hpp"

#include <ATen/ops/arange.h>

#include "dist/in_process_group.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// A collective that, unless it `hurries`, is not done before wait() is called, as on a rank whose device is late.
struct LateCollective final : Collective {
  LateCollective(std::unique_ptr<Collective> sent, bool hurries) : sent(std::move(sent)), hurries(hurries) {}
  bool done() override { return hurries && sent->done(); }
  void wait() override { sent->wait(); }
  std::unique_ptr<Collective> sent;
  bool hurries;
};

// A group whose collectives form one sequence per device, together with those of all other groups.
class DeviceGroup final : public ProcessGroup {
 public:
  using Calls = std::shared_ptr<std::vector<std::string>>;
  DeviceGroup(std::shared_ptr<ProcessGroup> ranks, std::string name, bool hurries, Calls calls)
      : ranks_(std::move(ranks)), name_(std::move(name)), hurries_(hurries), calls_(std::move(calls)) {}
  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  std::string transport(const c10::Device&) override { return "HCCL"; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override {
    return std::make_shared<DeviceGroup>(ranks_->subgroup(ranks), name_ + "/" + std::to_string(parts_++), hurries_, calls_);
  }
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    return called("all_to_all", ranks_->all_to_all(out, in));
  }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& t) override { return called("all_reduce", ranks_->all_reduce(t)); }
  std::unique_ptr<Collective> reduce_scatter(const at::Tensor& out, const at::Tensor& in) override {
    return called("reduce_scatter", ranks_->reduce_scatter(out, in));
  }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override {
    return called("all_gather", ranks_->all_gather(out, in));
  }
  std::vector<std::string> gather(const std::string& call, const std::string& own) override { return ranks_->gather(call, own); }
  using ProcessGroup::gather;
  void broadcast(const at::Tensor& t) override { ranks_->broadcast(t); }
  void main_first(const std::function<void()>& work) override { ranks_->main_first(work); }
  void abandon() noexcept override { ranks_->abandon(); }

 private:
  std::unique_ptr<Collective> called(const std::string& call, std::unique_ptr<Collective> sent) {
    calls_->push_back(name_ + " " + call);
    return std::make_unique<LateCollective>(std::move(sent), hurries_);
  }

  std::shared_ptr<ProcessGroup> ranks_;
  std::string name_;
  bool hurries_;
  Calls calls_;
  int parts_ = 0;
};

constexpr int kDeviceRanks = 4;

struct DeviceCase {
  const char* name;
  Sharding sharding;
  DistOptions options;
  std::vector<std::string> calls;  // the calls that must occur
};

const DeviceCase kDeviceCases[] = {
    {"ddp", Sharding::None, {.bucket_mib = 0.001}, {"all all_reduce"}},
    {"ddp, ordered", Sharding::None, {.reduction = "ordered", .bucket_mib = 0.001}, {"all all_to_all", "all all_gather"}},
    {"zero1", Sharding::Optimizer, {.bucket_mib = 0.001}, {"all reduce_scatter"}},
    {"zero2", Sharding::Gradients, {.bucket_mib = 0.001}, {"all reduce_scatter"}},
    {"zero2, ordered", Sharding::Gradients, {.reduction = "ordered", .bucket_mib = 0.001}, {"all all_to_all"}},
    {"zero2, HSDP", Sharding::Gradients, {.shard_size = "2", .bucket_mib = 0.001}, {"all/0 reduce_scatter", "all/1 all_reduce"}},
    {"zero2, HSDP, ordered",
     Sharding::Gradients,
     {.reduction = "ordered", .shard_size = "2", .bucket_mib = 0.001},
     {"all all_to_all", "all/1 all_gather"}},
    {"zero3", Sharding::Parameters, {.bucket_mib = 0.001}, {"all reduce_scatter", "all all_gather"}},
    {"zero3, HSDP", Sharding::Parameters, {.shard_size = "2", .bucket_mib = 0.001}, {"all/0 reduce_scatter", "all/1 all_reduce"}},
};

// Returns integers, whose sums are exact in every order.
at::Tensor device_factor(int64_t numel, int rank, int window, int round) {
  return (at::arange(numel, at::kFloat) * (rank + 1)).remainder(7 + window) - round;
}

// Compares the sums of a rank's slices after each window of two micro-batches with the expected ones.
void check_sums(const DeviceCase& c, const std::shared_ptr<ProcessGroup>& group) {
  ParameterSet all;
  for (const int64_t numel : {700, 65, 300, 128}) {
    auto value = at::arange(numel, at::kFloat) * 0.01;
    all.add({.name = c10::str("p", numel), .value = value.clone().requires_grad_(true)});
  }
  std::vector<ParameterUnit> units;
  if (c.sharding == Sharding::Parameters) units = {{"first", {"p700", "p65"}}};
  GradientReducer reducer(all, group, c.options, c.sharding, units);
  for (int window = 0; window < 2; ++window) {
    reducer.begin_window(2);
    for (int round = 0; round < 2; ++round) {
      if (c.sharding == Sharding::Parameters) reducer.begin_forward();
      const auto loss_of = [&](size_t begin, size_t end) {
        at::Tensor out = at::zeros({});
        for (size_t i = begin; i < end; ++i)
          out = out + (all[i].value * device_factor(all[i].value.numel(), group->rank(), window, round)).sum();
        return out;
      };
      auto loss = loss_of(2, 4);
      if (c.sharding == Sharding::Parameters)
        loss = loss + reducer.run(
                          0, [&](const at::Tensor& zero) { return zero + loss_of(0, 2); }, at::zeros({}).requires_grad_(true));
      else
        loss = loss + loss_of(0, 2);
      reducer.begin_backward(round == 1);
      loss.backward();
    }
    reducer.finish();
    for (size_t i = 0; i < all.size(); ++i) {
      auto expected = at::zeros({all[i].value.numel()});
      for (int r = 0; r < group->size(); ++r)
        for (int round = 0; round < 2; ++round) expected += device_factor(expected.numel(), r, window, round);
      const auto& own = reducer.own()[i];
      const auto begin = own.is_slice() ? own.begin : 0;
      CAPTURE(all[i].name);
      CHECK(at::equal(own.value.grad(), expected.narrow(0, begin, own.value.numel())));
    }
    reducer.own().zero_grad();
  }
}

}  // namespace

TEST_CASE("between devices each rank starts its collectives in one sequence, whatever has arrived when, and shards are scattered sums") {
  for (const auto& c : kDeviceCases) {
    CAPTURE(c.name);
    const auto network = std::make_shared<Network>(kDeviceRanks);
    std::vector<DeviceGroup::Calls> calls(kDeviceRanks);
    on_ranks(network->agreements, [&](int rank) {
      auto& own = calls[static_cast<size_t>(rank)] = std::make_shared<std::vector<std::string>>();
      check_sums(c, std::make_shared<DeviceGroup>(std::make_shared<InProcessGroup>(network, rank), "all", rank % 2 == 1, own));
    });
    for (int rank = 1; rank < kDeviceRanks; ++rank) CHECK(*calls[static_cast<size_t>(rank)] == *calls[0]);
    for (const auto& call : c.calls) CHECK(std::find(calls[0]->begin(), calls[0]->end(), call) != calls[0]->end());
    if (c.options.reduction != "ordered") CHECK(std::find(calls[0]->begin(), calls[0]->end(), "all all_to_all") == calls[0]->end());
  }
}
