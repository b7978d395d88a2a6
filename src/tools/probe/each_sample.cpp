#include "tools/probe/each_sample.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "npu_train/data/loader.hpp"

namespace npu_train::detail {

void on_all_cores(const std::function<void(bool)>& work) {
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < std::min<int64_t>(16, cpu_count()); ++i) threads.emplace_back(work, false);
  work(true);
  for (auto& thread : threads) thread.join();
}

void each_sample(int64_t count, const std::function<void(int64_t)>& use, const std::function<void(int64_t)>& begun) {
  std::atomic<int64_t> next{0};
  const auto work = [&](bool reports) {
    for (int64_t i = 0; (i = next++) < count;) {
      if (reports) begun(i);
      use(i);
    }
  };
  begun(0);
  on_all_cores(work);
}

std::vector<int64_t> labels_of(const Sample& sample, int64_t classes) {
  std::vector<int64_t> out;
  for (const auto& [name, value] : sample.fields) {
    if (name != "target") continue;
    if (value.numel() == 1 && value.scalar_type() == at::kLong)
      if (const auto label = value.item<int64_t>(); label >= 0 && label < classes) out.push_back(label);
    if (value.dim() != 1 || value.scalar_type() != at::kFloat || value.numel() != classes) continue;
    for (int64_t c = 0; c < classes; ++c)
      if (value[c].item<float>() > 0.5f) out.push_back(c);
  }
  return out;
}

}  // namespace npu_train::detail
