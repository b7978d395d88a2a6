// Steps of four ranks, compared with those of one process that accumulates the micro-batches of all: every normalisation, strategy,
// division of the batches and precision.
#include "testing.hpp"

#include <ATen/ops/cat.h>

#include <map>
#include <optional>

#include "dist/in_process_group.hpp"
#include "npu_train/dist/data_parallel.hpp"
#include "npu_train/dist/offload.hpp"
#include "npu_train/nn/batch_norm_act.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int kProductRanks = 4;
const std::vector<ParameterUnit> kProductUnits{{"first", {"first.weight", "first.bias", "norm.weight", "norm.bias"}},
                                               {"head", {"head.weight", "head.bias"}}};

// A network of two units, with or without a norm between them, and a parameter outside of units that only micro-batches with an even number
// of rows use.
struct ProductNetImpl : torch::nn::Module {
  explicit ProductNetImpl(bool normalised) {
    first = register_module("first", torch::nn::Linear(6, 16));
    if (normalised) norm = register_module("norm", torch::nn::BatchNorm1d(16));
    head = register_module("head", torch::nn::Linear(16, 4));
    sometimes = register_parameter("sometimes", torch::zeros({4}));
  }
  at::Tensor below(const at::Tensor& x) {
    const auto h = first(x);
    if (norm.is_empty()) return h.relu();
    if (is_training()) norm->num_batches_tracked.add_(1);
    return batch_norm_act(h, {norm->weight, norm->bias, norm->running_mean, norm->running_var, is_training()}).relu();
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto h = run(
        0, [this](const at::Tensor& in) { return below(in); }, x);
    const auto y = run(
        1, [this](const at::Tensor& in) { return head(in); }, h);
    return x.size(0) % 2 == 0 ? y + sometimes : y;
  }
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x) {
    return strategy->units() != nullptr ? strategy->units()->run(unit, forward, x) : forward(x);
  }
  std::shared_ptr<Strategy> strategy;
  torch::nn::Linear first{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor sometimes;
};
TORCH_MODULE(ProductNet);

struct ProductStrategy {
  const char* name;
  Sharding sharding = Sharding::None;
  const char* shard_size = "auto";
  bool offloads = false, overlap = true;
};
const ProductStrategy kProductStrategies[] = {
    {"ddp"},
    {"ddp without overlap", Sharding::None, "auto", false, false},
    {"ddp, offload", Sharding::None, "auto", true},
    {"zero1", Sharding::Optimizer},
    {"zero2", Sharding::Gradients},
    {"zero2, offload", Sharding::Gradients, "auto", true},
    {"zero2, HSDP", Sharding::Gradients, "2"},
    {"zero3", Sharding::Parameters},
    {"zero3, offload", Sharding::Parameters, "auto", true},
    {"zero3, HSDP", Sharding::Parameters, "2"},
};

// Rows of the micro-batches in a window, by round and rank; 0: the rank has none.
using Rows = std::vector<std::vector<int64_t>>;
const std::map<std::string, Rows> kDivisions{
    {"equal", {{4, 5, 4, 3}, {3, 4, 6, 5}}},
    {"ragged", {{4, 5, 3, 4}, {5, 2, 0, 0}}},
    {"idle", {{4, 3, 0, 0}}},
    {"idle in both rounds", {{4, 0, 0, 0}, {3, 0, 0, 0}}},
};
constexpr size_t kProductWindows = 4, kOverflows = 2;  // kOverflows: the window whose first micro-batch overflows in 16 bits

// Returns the windows of the ranks from `first` to `last`, as one process gets them.
std::vector<std::vector<Batch>> product_windows(const Rows& rows, int first, int last, bool overflows) {
  std::vector<std::vector<Batch>> out(kProductWindows);
  for (size_t w = 0; w < kProductWindows; ++w)
    for (size_t k = 0; k < rows.size(); ++k)
      for (int r = first; r <= last; ++r) {
        const auto n = rows[k][static_cast<size_t>(r)];
        if (n == 0) continue;
        auto batch = toy_batch(n, 1000 * w + 100 * k + static_cast<uint64_t>(r));
        if (overflows && w == kOverflows && k == 0 && r == 0) batch.set("input", batch.input() * 1e30);
        out[w].push_back(batch);
      }
  return out;
}

struct ProductEnd {
  std::vector<at::Tensor> tensors;  // parameters, then buffers
  std::vector<bool> taken;
};

struct ProductCase {
  std::string norm, precision;
  Rows rows;
};

// Draws the weights of the nets one after the other, because threads share one generator.
ProductNet drawn_net(const ProductCase& c) {
  torch::manual_seed(11);
  return ProductNet(c.norm != "none");
}

ProductEnd product_end(const ProductCase& c, ProductNet net, const std::shared_ptr<Strategy>& strategy,
                       const std::vector<std::vector<Batch>>& windows) {
  net->strategy = strategy;
  const auto task = classifier(net);
  const auto precision = make_precision({c.precision, {.growth_interval = 2}, {}}, device_of(at::kCPU));
  const auto trained = precision->prepare(task->parameters(), {"norm.weight", "norm.bias"});
  const auto updated = strategy->setup(trained);
  precision->set_updated(updated);
  Sgd optimizer(updated, SgdOptions{.lr = 0.1, .momentum = 0.9});
  Observers observers;
  TrainStep step(*task, *precision, optimizer, nullptr, *strategy, observers,
                 {.clip_value = 0.5, .sync_batchnorm = c.norm == "SyncBatchNorm"});
  ProductEnd out;
  for (const auto& window : windows) out.taken.push_back(step.run(window, 32).taken);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> slices;
  for (size_t i = 0; i < updated.size(); ++i) {
    slices.push_back(updated[i].value.detach());
    out.tensors.push_back(at::empty(trained[i].value.sizes()));
  }
  strategy->gather_slices(slices, out.tensors);
  for (const auto& [name, buffer] : task->buffers()) out.tensors.push_back(buffer.clone());
  return out;
}

std::vector<ProductEnd> product_ends(const ProductCase& c, const ProductStrategy& s, bool overflows) {
  const auto network = std::make_shared<Network>(kProductRanks);
  std::vector<std::vector<std::vector<Batch>>> windows;
  std::vector<ProductNet> nets;
  for (int r = 0; r < kProductRanks; ++r) {
    windows.push_back(product_windows(c.rows, r, r, overflows));
    nets.push_back(drawn_net(c));
  }
  std::vector<ProductEnd> out(kProductRanks);
  on_ranks(network->agreements, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const DistOptions options{.reduce = "micro_batch", .shard_size = s.shard_size, .overlap = s.overlap, .bucket_mib = 0.001};
    std::shared_ptr<Strategy> strategy =
        std::make_shared<DataParallelStrategy>(std::make_shared<InProcessGroup>(network, rank), options, at::kCPU, s.sharding);
    if (auto* units = strategy->units()) units->set(kProductUnits);
    if (s.offloads) strategy = std::make_shared<OffloadedStrategy>(strategy);
    out[r] = product_end(c, nets[r], strategy, windows[r]);
  });
  return out;
}

void check_same_end(const ProductEnd& end, const ProductEnd& expected) {
  CHECK(end.taken == expected.taken);
  REQUIRE(end.tensors.size() == expected.tensors.size());
  for (size_t i = 0; i < end.tensors.size(); ++i) {
    CAPTURE(i);
    CHECK(at::equal(end.tensors[i], expected.tensors[i]));
  }
}

}  // namespace

TEST_CASE(
    "every normalisation x strategy x division x precision: the bits of one process that accumulates the micro-batches of all ranks") {
  at::set_num_threads(1);
  for (const std::string norm : {"none", "BatchNorm", "SyncBatchNorm"})
    for (const std::string precision : {"32-true", "bf16-mixed", "16-mixed"})
      for (const auto& [division, rows] : kDivisions) {
        const ProductCase c{.norm = norm, .precision = precision, .rows = rows};
        const bool overflows = precision == "16-mixed";
        // SyncBatchNorm normalises over all ranks, so its expected result is that of the first strategy.
        std::optional<ProductEnd> expected;
        if (norm != "SyncBatchNorm") {
          expected = product_end(c, drawn_net(c), std::make_shared<SingleDeviceStrategy>(),
                                 product_windows(rows, 0, kProductRanks - 1, overflows));
          CHECK(expected->taken == std::vector<bool>{true, true, !overflows, true});
        }
        for (const auto& s : kProductStrategies) {
          if (norm == "SyncBatchNorm" && s.sharding == Sharding::Parameters) continue;  // refused with an error that names it
          CAPTURE(norm);
          CAPTURE(precision);
          CAPTURE(division);
          CAPTURE(s.name);
          const auto ends = product_ends(c, s, overflows);
          if (!expected) expected = ends[0];
          for (const auto& end : ends) check_same_end(end, *expected);
        }
      }
}
