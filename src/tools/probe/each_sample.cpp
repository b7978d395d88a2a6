#include "tools/probe/each_sample.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "npu_train/data/loader.hpp"

namespace npu_train::detail {
namespace {

/// Calls work(true) on the calling thread and work(false) on up to 15 others, and waits for all. `work` must not throw.
void on_all_cores(const std::function<void(bool)>& work) {
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < std::min<int64_t>(16, cpu_count()); ++i) threads.emplace_back(work, false);
  work(true);
  for (auto& thread : threads) thread.join();
}

}  // namespace

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

int64_t each_image(ImageStream& stream, const std::function<void(int64_t, const PendingImage&)>& use,
                   const std::function<void(int64_t)>& failed) {
  std::mutex reading;
  int64_t count = 0;
  bool ended = false;
  const auto next = [&]() -> std::optional<std::pair<int64_t, PendingImage>> {
    const std::lock_guard lock(reading);
    while (!ended) {
      try {
        if (auto image = stream.next_image()) return std::pair(count++, std::move(*image));
        ended = true;
      } catch (...) {
        failed(count++);
      }
    }
    return std::nullopt;
  };
  on_all_cores([&](bool) {
    while (const auto image = next()) use(image->first, image->second);
  });
  return count;
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
