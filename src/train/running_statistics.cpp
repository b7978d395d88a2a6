#include "train/running_statistics.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <optional>

#include "npu_train/base/host_numbers.hpp"
#include "npu_train/base/number_bytes.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/sync_batch_norm.hpp"

namespace npu_train::detail {
namespace {

bool is_counter(const NamedTensor& buffer) { return buffer.second.numel() == 1 && at::isIntegralType(buffer.second.scalar_type(), false); }

// The moves of one rank, read from the numbers that own_moves() returns.
class Moves {
 public:
  Moves(std::vector<double> numbers, size_t rank) : numbers_(std::move(numbers)), rank_(rank) {}
  double next() { return *take(1); }
  std::vector<double> next(double count) {
    const auto first = take(count);
    return {first, first + static_cast<ptrdiff_t>(count)};
  }

 private:
  // Returns where the next `count` numbers begin.
  std::vector<double>::const_iterator take(double count) {
    const auto first = numbers_.cbegin() + static_cast<ptrdiff_t>(at_);
    check(count >= 0 && count <= static_cast<double>(numbers_.cend() - first), ErrorKind::Peer, "running statistics", "those of rank ",
          rank_, " are cut off; hint: all ranks must run the same program with the same model");
    at_ += static_cast<size_t>(count);
    return first;
  }

  std::vector<double> numbers_;
  size_t rank_, at_ = 0;
};

}  // namespace

void RunningStatistics::begin_window(int64_t micro_batches) {
  rounds_ = complete_rounds_ = micro_batches;
  round_ = 0;
  if (waits()) {
    const auto of_ranks = strategy_.ranks().gather(at::full({1}, micro_batches, at::kLong));
    rounds_ = of_ranks.max().item<int64_t>();
    complete_rounds_ = of_ranks.min().item<int64_t>();
  }
  all_compute_ = complete_rounds_ > 0;
  micro_batches_.clear();
  counters_.clear();
  if (strategy_.ranks().size() == 1 || !strategy_.adds_in_order()) return;
  buffers_ = task_.buffers();
  for (const auto& buffer : buffers_)
    if (is_counter(buffer)) counters_.push_back(buffer.second.item<int64_t>());
}

std::shared_ptr<const ForwardContext::Ranks> RunningStatistics::ranks() const {
  if (!compares_) return nullptr;
  const auto gather_of_ranks = [this](const std::vector<double>& own) { return gather(own); };
  return std::make_shared<const ForwardContext::Ranks>(
      ForwardContext::Ranks{gather_of_ranks, static_cast<size_t>(strategy_.ranks().rank())});
}

void RunningStatistics::collect(const std::function<void()>& forward) {
  std::optional<SyncBatchNorm> synced;
  if (synced_) synced.emplace([this](const at::Tensor& own) { return gather_rows(own); });
  if (buffers_.empty()) return forward();
  NormMoves moves;
  forward();
  auto& taken = micro_batches_.emplace_back(moves.take());
  std::erase_if(taken, [&](const NormMove& move) { return index_of(move.running) < 0; });
}

// Gathers the numbers of every rank.
std::vector<std::vector<double>> RunningStatistics::gather(const std::vector<double>& own) const {
  std::vector<std::vector<double>> out;
  for (const auto& bytes : strategy_.ranks().gather(to_bytes(own))) out.push_back(numbers_of_bytes("running statistics", bytes));
  return out;
}

// Gathers the numbers of the ranks that compute this pass. The other ranks take part by begin_backward() or end_micro_batch().
at::Tensor RunningStatistics::gather_rows(const at::Tensor& own) const {
  if (all_compute_) return strategy_.ranks().gather(own);
  std::vector<at::Tensor> rows;
  for (const auto& of_rank : gather(host_numbers(own))) {
    if (of_rank.empty()) continue;
    check(static_cast<int64_t>(of_rank.size()) == own.numel(), ErrorKind::Peer, "SyncBatchNorm", "a rank gave ", of_rank.size(),
          " numbers where this one gave ", own.numel(), "; hint: all ranks must run the same layers in the same order");
    rows.push_back(at::tensor(of_rank, at::kDouble));
  }
  return at::stack(rows);
}

// Returns -1 if the task does not list the buffer; the first step warns of that.
ptrdiff_t RunningStatistics::index_of(const at::Tensor& running) const {
  const auto found =
      std::find_if(buffers_.begin(), buffers_.end(), [&](const NamedTensor& b) { return b.second.data_ptr() == running.data_ptr(); });
  return found == buffers_.end() ? -1 : found - buffers_.begin();
}

// Returns the moves of this rank as numbers: the growth of each counter, then the number of micro-batches. For each micro-batch follow the
// number of its moves and, for each move, the index of the buffer, `keep`, the number of channels, and `added`.
std::vector<double> RunningStatistics::own_moves() const {
  std::vector<double> out;
  for (const auto& buffer : buffers_)
    if (is_counter(buffer)) out.push_back(static_cast<double>(buffer.second.item<int64_t>() - counters_[out.size()]));
  out.push_back(static_cast<double>(micro_batches_.size()));
  for (const auto& moves : micro_batches_) {
    out.push_back(static_cast<double>(moves.size()));
    for (const auto& move : moves) {
      out.insert(out.end(), {static_cast<double>(index_of(move.running)), move.keep, static_cast<double>(move.added.size())});
      out.insert(out.end(), move.added.begin(), move.added.end());
    }
  }
  return out;
}

// Restores the statistics as they were before the window.
void RunningStatistics::go_back() const {
  for (auto moves = micro_batches_.rbegin(); moves != micro_batches_.rend(); ++moves)
    for (auto move = moves->rbegin(); move != moves->rend(); ++move) move->running.data().copy_(move->before);
}

void RunningStatistics::begin_backward(bool computes) {
  if (!waits() || !all_compute_) return;
  all_compute_ = !strategy_.ranks().any(!computes);
}

void RunningStatistics::end_micro_batch() {
  const auto is_over = [](const auto& of_rank) { return of_rank.empty(); };
  for (bool all_over = all_compute_; !all_over;) {
    const auto all = gather({});
    all_over = std::all_of(all.begin(), all.end(), is_over);
  }
  all_compute_ = ++round_ < complete_rounds_;
}

void RunningStatistics::apply() {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<Moves> ranks;
  for (auto& numbers : gather(own_moves())) ranks.emplace_back(std::move(numbers), ranks.size());
  go_back();

  size_t i = 0;
  for (const auto& buffer : buffers_) {
    if (!is_counter(buffer)) continue;
    double sum = 0, most = 0;
    for (auto& rank : ranks) {
      const double grown = rank.next();
      sum += grown;
      most = std::max(most, grown);
    }
    buffer.second.data().fill_(static_cast<double>(counters_[i++]) + (synced_ ? most : sum));
  }
  std::vector<double> micro_batches;
  for (auto& rank : ranks) micro_batches.push_back(rank.next());
  for (double k = 0; k < *std::max_element(micro_batches.begin(), micro_batches.end()); ++k) {
    const auto has_batch = [k](double of_rank) { return k < of_rank; };
    const auto first = static_cast<size_t>(std::find_if(micro_batches.begin(), micro_batches.end(), has_batch) - micro_batches.begin());
    for (size_t r = 0; r < ranks.size(); ++r)
      for (double moves = has_batch(micro_batches[r]) ? ranks[r].next() : 0; moves > 0; --moves) {
        const double index = ranks[r].next();
        check(index >= 0 && index < static_cast<double>(buffers_.size()), ErrorKind::Peer, "running statistics", "rank ", r,
              " has other buffers");
        const double keep = ranks[r].next();
        const auto added = ranks[r].next(ranks[r].next());
        if (!synced_ || r == first) move_norm(buffers_[static_cast<size_t>(index)].second, keep, added);
      }
  }
}

}  // namespace npu_train::detail
