// Uses only npu_train::measure: the memory of a training step by batch, and the faster of two forms of a product.
#include <torch/types.h>

#include <cstdio>

#include <npu_train/core/error.hpp>
#include <npu_train/tools/bench/samples.hpp>
#include <npu_train/tools/memory/memory_prediction.hpp>

int main() try {
  npu_train::RunConfig config{.device = "cpu", .precision = "32-true"};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 16}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.trainer = {.max_steps = 1, .threads = 1};
  config.output.dir = "";
  const auto memory = npu_train::measure_memory(config);
  const auto small = memory.peak(8).allocated, large = memory.peak(64).allocated;
  std::printf("a step takes %lld bytes with 8 samples, %lld with 64\n", static_cast<long long>(small), static_cast<long long>(large));

  const auto a = torch::ones({64, 64});
  const auto pairs = npu_train::measure_alternately([&] { a.mm(a); }, [&] { a.matmul(a); }, 6);
  std::printf("mm and matmul: %s\n", pairs.ratio().str().c_str());
  return small > 0 && large > small ? 0 : 1;
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
