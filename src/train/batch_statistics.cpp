#include "train/batch_statistics.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "npu_train/nn/norm_watch.hpp"

namespace npu_train::detail {

BatchStatistics::BatchStatistics(std::vector<NamedTensor> buffers)
    : buffers_(std::move(buffers)), sums_(buffers_.size()), counts_(buffers_.size()) {
  for (const auto& [name, buffer] : buffers_) before_.push_back(buffer.detach().clone());
}

void BatchStatistics::collect(const std::function<void()>& forward) {
  NormMoves moves;
  forward();
  for (const auto& move : moves.take()) {
    const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                    [&](const NamedTensor& b) { return b.second.data_ptr() == move.running.data_ptr(); });
    const double momentum = 1 - move.keep;
    if (found == buffers_.end() || momentum == 0) continue;
    const auto i = static_cast<size_t>(found - buffers_.begin());
    sums_[i].resize(move.added.size());
    for (size_t c = 0; c < move.added.size(); ++c) sums_[i][c] += static_cast<double>(static_cast<float>(move.added[c] / momentum));
    ++counts_[i];
    found->second.data().zero_();  // so that the next move is momentum * measured value, without the rounding of a sum with keep * running
  }
}

bool BatchStatistics::any() const {
  return std::any_of(counts_.begin(), counts_.end(), [](double count) { return count > 0; });
}

void BatchStatistics::begin_again() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (counts_[i] == 0) buffers_[i].second.data().copy_(before_[i]);  // measured buffers are 0
    sums_[i].clear();
    counts_[i] = 0;
  }
}

void BatchStatistics::write(Ranks& ranks) {
  const at::NoGradGuard no_grad;
  const auto counts = ranks.sums(counts_);
  std::vector<double> all;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (counts[i] == 0) continue;
    sums_[i].resize(static_cast<size_t>(buffers_[i].second.numel()));  // a rank without a batch has no sums
    all.insert(all.end(), sums_[i].begin(), sums_[i].end());
  }
  all = ranks.sums(std::move(all));
  auto from = all.begin();
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const auto buffer = buffers_[i].second.data();
    if (counts[i] == 0) {
      buffer.copy_(before_[i]);
      continue;
    }
    std::vector<double> means(from, from + buffer.numel());
    from += buffer.numel();
    for (auto& mean : means) mean /= counts[i];
    buffer.copy_(at::tensor(means, at::kDouble).view(buffer.sizes()));
  }
}

}  // namespace npu_train::detail
