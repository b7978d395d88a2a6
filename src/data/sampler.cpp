#include "npu_train/data/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train {
namespace {

// Returns for each sample the sum of the weights up to and including its own. Error(Usage) for a weight that is negative or not finite, or
// a total that is 0 or not finite.
std::vector<double> sums_of(const std::vector<double>& weights) {
  std::vector<double> out;
  double sum = 0;
  for (const double weight : weights) {
    check(weight >= 0 && std::isfinite(weight), ErrorKind::Usage, "sampler", "the weight of sample ", out.size(), " is ", weight,
          "; allowed: finite numbers of at least 0");
    out.push_back(sum += weight);
  }
  check(sum > 0 && std::isfinite(sum), ErrorKind::Usage, "sampler", "the sum of all ", weights.size(), " weights is ", sum,
        "; allowed: a finite number above 0");
  return out;
}

// Error(Usage) unless all indices are below `size` and differ.
void check_subset(const std::vector<int64_t>& subset, int64_t size) {
  std::vector<bool> seen(subset.empty() ? 0 : static_cast<size_t>(size));
  for (const auto index : subset) {
    check(index >= 0 && index < size, ErrorKind::Usage, "sampler", "the subset has the index ", index, "; allowed: 0 to ", size - 1);
    check(!seen[static_cast<size_t>(index)], ErrorKind::Usage, "sampler", "the subset has the index ", index, " twice; allowed: once");
    seen[static_cast<size_t>(index)] = true;
  }
}

}  // namespace

std::vector<int64_t> permutation(uint64_t seed, int64_t epoch, int64_t n) {
  check(n >= 0 && n <= int64_t{0xffffffff}, ErrorKind::Usage, "sampler", n, " samples cannot be shuffled; at most 4,294,967,295");
  std::vector<int64_t> order = sequence(n);
  Philox rng(derive_seed(seed, "shuffle", static_cast<uint64_t>(epoch)));
  for (int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[rng.below(static_cast<uint32_t>(i + 1))]);
  return order;
}

std::vector<int64_t> weighted_draws(uint64_t seed, int64_t epoch, const std::vector<double>& weights) {
  const auto until = sums_of(weights);
  const double sum = until.back();
  Philox rng(derive_seed(seed, "weighted draws", static_cast<uint64_t>(epoch)));
  std::vector<int64_t> out;
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint64_t high = rng() >> 5, low = rng() >> 6;  // 27 and 26 bits: a number in [0, 1) with all bits of a double
    const double at = (static_cast<double>(high) * 0x1p26 + static_cast<double>(low)) * 0x1p-53 * sum;
    out.push_back(std::upper_bound(until.begin(), until.end() - 1, at) - until.begin());
  }
  return out;
}

std::vector<int64_t> sequence(int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

DistributedSampler::DistributedSampler(const SamplerOptions& options) : options_(options) {
  check(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, ErrorKind::Usage, "sampler", "rank ",
        options.rank, " of ", options.world_size, "; allowed: 0 <= rank < world_size");
  check(options.size >= 0 && options.batch_size >= 1, ErrorKind::Usage, "sampler", options.size, " samples in batches of ",
        options.batch_size, "; allowed: at least 0 samples, batches of at least 1");
  check(options.weights.empty() || static_cast<int64_t>(options.weights.size()) == options.size, ErrorKind::Usage, "sampler",
        options.weights.size(), " weights for ", options.size, " samples; allowed: one for each, or none");
  check(options.weights.empty() || options.subset.empty(), ErrorKind::Usage, "sampler",
        "has both weights and a subset; allowed: one of them");
  check_subset(options.subset, options.size);
  if (!options.weights.empty()) sums_of(options.weights);
}

std::vector<int64_t> DistributedSampler::order(int64_t epoch) const {
  if (!options_.weights.empty()) return weighted_draws(options_.seed, epoch, options_.weights);
  auto out = options_.shuffle ? permutation(options_.seed, epoch, samples()) : sequence(samples());
  if (options_.subset.empty()) return out;
  for (auto& i : out) i = options_.subset[static_cast<size_t>(i)];
  return out;
}

int64_t DistributedSampler::batches() const {
  const auto& o = options_;
  return samples() / o.batch_size + (!o.drop_last && samples() % o.batch_size != 0 ? 1 : 0);
}

int64_t DistributedSampler::batches_from(int64_t first_batch) const {
  const int64_t from_own_first = batches() - first_batch - options_.rank;
  return from_own_first > 0 ? (from_own_first - 1) / options_.world_size + 1 : 0;
}

int64_t DistributedSampler::samples_on_rank() const {
  const auto& o = options_;
  const int64_t count = batches_on_rank();
  if (count == 0) return 0;
  const int64_t last = o.rank + (count - 1) * o.world_size;
  return (count - 1) * o.batch_size + std::min(o.batch_size, samples() - last * o.batch_size);
}

void DistributedSampler::set_epoch(int64_t epoch, int64_t first_batch) {
  const auto& o = options_;
  check(epoch >= 0 && first_batch >= 0 && first_batch <= batches(), ErrorKind::Usage, "sampler", "epoch is ", epoch, " and first_batch ",
        first_batch, "; allowed: at least 0, and an epoch has ", batches(), " batches");
  const auto all = order(epoch);
  first_batch_ = first_batch;
  begun_ = true;
  own_.clear();
  for (int64_t round = 0; round < rounds_on_rank(); ++round) {
    const int64_t begin = index(round) * o.batch_size, end = begin + std::min(o.batch_size, samples() - begin);
    own_.insert(own_.end(), all.begin() + begin, all.begin() + end);
  }
}

std::vector<int64_t> DistributedSampler::indices(int64_t round) const {
  check(begun_, ErrorKind::Usage, "sampler", "indices() before set_epoch()");
  check(round >= 0, ErrorKind::Usage, "sampler", "round is ", round, "; allowed: at least 0");
  if (round >= rounds_on_rank()) return {};
  const int64_t begin = round * options_.batch_size;
  return {own_.begin() + begin, own_.begin() + std::min(begin + options_.batch_size, static_cast<int64_t>(own_.size()))};
}

}  // namespace npu_train
