#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <algorithm>
#include <numeric>

#include "npu_train/tools/memory/memory_trace.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;

namespace {

int64_t of(const MemoryByUse& uses, MemoryUse use) { return uses[static_cast<size_t>(use)]; }

}  // namespace

TEST_CASE("blocks of a step: what they are for, in which phase and layer") {
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(), torch::nn::Linear(256, 8));
  const auto task = classifier(net);
  const Batch batch(at::randn({32, 64}), at::zeros({32}, at::kLong));
  MemoryTrace trace, forward;
  {
    MemoryRecorder recorder(*task, {});
    Observers observers;
    observers.add(&recorder);
    StepOutput out;
    observers.run(Phase::Forward, 0, 0, [&] { out = task->training_step(batch); });
    forward = recorder.take();
    observers.run(Phase::Backward, 0, 0, [&] { out.loss.backward(); });
    trace = recorder.take();
  }
  MemoryByUse all{};
  for (const auto& b : trace.blocks) all[static_cast<size_t>(b.use)] += b.bytes;
  CHECK(of(all, MemoryUse::Activations) >= 32 * 256 * 4);                      // the input of the second layer
  CHECK(of(all, MemoryUse::Gradients) == (64 * 256 + 256 + 256 * 8 + 8) * 4);  // the size of the parameters
  const auto peak = trace.live_after(trace.peak_event() + 1);
  CHECK(std::accumulate(peak.begin(), peak.end(), int64_t{0}) > 32 * 256 * 4);
  CHECK(std::find(trace.layers.begin(), trace.layers.end(), "0") != trace.layers.end());
  CHECK(std::find(trace.layers.begin(), trace.layers.end(), "2") != trace.layers.end());
  REQUIRE(forward.last_layers.size() == 2);
  CHECK(forward.last_layers[0].layer == "0");
  CHECK(forward.last_layers[0].type == "Linear");
  CHECK(forward.last_layers[0].phase == "forward");
  CHECK(forward.last_layers[0].shapes == "[32, 64] -> [32, 256]");
  CHECK(forward.last_layers[1].allocated > forward.last_layers[0].allocated);
  CHECK(trace.last_layers.size() <= 5);
  CHECK(trace.last_layers.back().phase == "backward");
  CHECK(trace.refused == 0);
  std::vector<int> balance(trace.blocks.size(), 0);
  for (const auto& e : trace.events) balance[static_cast<size_t>(e.block)] += e.frees ? -1 : 1;
  CHECK(std::all_of(balance.begin(), balance.end(), [](int n) { return n == 0 || n == 1; }));
}

TEST_CASE("blocks of before, of other threads' making and of another device are not seen") {
  const auto task = classifier(torch::nn::Linear(4, 2));
  auto old = at::zeros({1000});
  MemoryRecorder recorder(*task, {});
  old.reset();
  CHECK(recorder.take().events.empty());
  const auto fresh = at::zeros({1000});
  CHECK(recorder.take().blocks.at(0).bytes >= 4000);
  CHECK((recorder.take().blocks.at(0).use == MemoryUse::Batch));  // outside all phases
}

TEST_CASE("memory that several tensors share counts once") {
  ResidentMemory memory;
  const auto weight = at::zeros({100});
  memory.add(MemoryUse::Parameters, {weight, weight.view({10, 10})});
  memory.add(MemoryUse::Masters, {weight});
  memory.add(MemoryUse::Buffers, {at::Tensor(), at::zeros({5})});
  CHECK(memory.total() == 420);
  CHECK(of(memory.by_use(), MemoryUse::Parameters) == 400);
  CHECK(of(memory.by_use(), MemoryUse::Masters) == 0);
}
