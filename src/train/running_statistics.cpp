#include "train/running_statistics.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

bool is_counter(const NamedTensor& buffer) { return buffer.second.numel() == 1 && at::isIntegralType(buffer.second.scalar_type(), false); }

// The moves of one rank, as own_moves() wrote them.
class Moves {
 public:
  Moves(const std::string& bytes, size_t rank) : numbers_(bytes.size() / sizeof(double)), rank_(rank) {
    std::memcpy(numbers_.data(), bytes.data(), numbers_.size() * sizeof(double));
  }
  double next() {
    check(at_ < numbers_.size(), ErrorKind::Peer, "running statistics", "those of rank ", rank_,
          " are cut off; hint: all ranks must run the same program with the same model");
    return numbers_[at_++];
  }
  std::vector<double> next(size_t count) {
    std::vector<double> out(count);
    for (double& x : out) x = next();
    return out;
  }

 private:
  std::vector<double> numbers_;
  size_t rank_, at_ = 0;
};

}  // namespace

void RunningStatistics::begin_window() {
  micro_batches_.clear();
  counters_.clear();
  if (strategy_.world_size() == 1 || !strategy_.adds_in_order()) return;
  buffers_ = task_.buffers();
  for (const auto& buffer : buffers_)
    if (is_counter(buffer)) counters_.push_back(buffer.second.item<int64_t>());
}

void RunningStatistics::collect(const std::function<void()>& forward) {
  if (buffers_.empty()) return forward();
  NormMoves moves;
  forward();
  auto& taken = micro_batches_.emplace_back(moves.take());
  std::erase_if(taken, [&](const NormMove& move) { return index_of(move.running) < 0; });
}

// -1: the task does not list it, of which the first step warns.
ptrdiff_t RunningStatistics::index_of(const at::Tensor& running) const {
  const auto found =
      std::find_if(buffers_.begin(), buffers_.end(), [&](const NamedTensor& b) { return b.second.data_ptr() == running.data_ptr(); });
  return found == buffers_.end() ? -1 : found - buffers_.begin();
}

// For each counter its growth; then the number of micro-batches, and for each the number of its moves and these: the index of the buffer,
// `keep`, the number of channels, `added`.
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

// To the beginning of the window.
void RunningStatistics::go_back() const {
  for (auto moves = micro_batches_.rbegin(); moves != micro_batches_.rend(); ++moves)
    for (auto move = moves->rbegin(); move != moves->rend(); ++move) move->running.data().copy_(move->before);
}

void RunningStatistics::apply() {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  const auto own = own_moves();
  std::string message(own.size() * sizeof(double), '\0');
  std::memcpy(message.data(), own.data(), message.size());
  std::vector<Moves> ranks;
  for (const auto& text : strategy_.gather(message)) ranks.emplace_back(text, ranks.size());
  go_back();

  size_t i = 0;
  for (const auto& buffer : buffers_) {
    if (!is_counter(buffer)) continue;
    double count = static_cast<double>(counters_[i++]);
    for (auto& rank : ranks) count += rank.next();
    buffer.second.data().fill_(count);
  }
  std::vector<double> micro_batches;
  for (auto& rank : ranks) micro_batches.push_back(rank.next());
  for (double k = 0; k < *std::max_element(micro_batches.begin(), micro_batches.end()); ++k)
    for (size_t r = 0; r < ranks.size(); ++r)
      for (double moves = k < micro_batches[r] ? ranks[r].next() : 0; moves > 0; --moves) {
        const auto index = static_cast<size_t>(ranks[r].next());
        check(index < buffers_.size(), ErrorKind::Peer, "running statistics", "rank ", r, " has other buffers");
        const double keep = ranks[r].next();
        const auto channels = static_cast<size_t>(ranks[r].next());
        move_norm(buffers_[index].second, keep, ranks[r].next(channels));
      }
}

}  // namespace npu_train::detail
