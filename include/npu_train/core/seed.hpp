/// The source of all random numbers of a run: one seed, split by purpose. The arithmetic is the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace npu_train {

/// Derives a seed for one purpose ("shuffle", "augment", "init"), epoch and index from the run's seed. Different inputs give unrelated
/// seeds (SplitMix64 finaliser over the parts).
uint64_t derive_seed(uint64_t seed, std::string_view purpose, uint64_t a = 0, uint64_t b = 0);

/// Returns the seed for draws that must differ between ranks, such as dropout; on rank 0 it is the run's seed. Initial weights use the
/// run's seed on every rank.
uint64_t rank_seed(uint64_t seed, int rank);

/// Counter-based generator Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). Cheap enough to construct
/// one per sample. Satisfies UniformRandomBitGenerator.
class Philox {
 public:
  using result_type = uint32_t;
  explicit Philox(uint64_t seed, uint64_t stream = 0) : key_(seed), stream_(stream) {}
  static constexpr uint32_t min() { return 0; }
  static constexpr uint32_t max() { return 0xffffffffu; }
  uint32_t operator()();
  /// Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>((*this)() >> 8) * 0x1.0p-24f; }
  float uniform(float lo, float hi) { return lo + (hi - lo) * uniform(); }
  /// Uniform in [0, n), n > 0; unbiased (Lemire 2019).
  uint32_t below(uint32_t n);
  /// Standard normal (Box-Muller).
  float normal();

 private:
  uint64_t key_;
  uint64_t stream_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int left_ = 0;
};

}  // namespace npu_train
