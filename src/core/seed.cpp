#include "npu_train/core/seed.hpp"

#include <cmath>
#include <numbers>

namespace npu_train {
namespace {

uint64_t mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// FNV-1a, written out here so that an update of a hash library cannot change seeds.
uint64_t number_of(std::string_view purpose) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : purpose) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// Computes ten rounds of Philox4x32 with the constants of the paper (see seed.hpp).
std::array<uint32_t, 4> philox_block(uint64_t key, uint64_t stream, uint64_t counter) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  uint32_t k0 = low(key), k1 = high(key);
  std::array<uint32_t, 4> x{low(counter), high(counter), low(stream), high(stream)};
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * x[0], b = uint64_t{0xCD9E8D57u} * x[2];
    x = {high(b) ^ x[1] ^ k0, low(b), high(a) ^ x[3] ^ k1, low(a)};
  }
  return x;
}

}  // namespace

uint64_t derive_seed(uint64_t seed, std::string_view purpose, uint64_t a, uint64_t b) {
  // Mixes each part before the next one is added, so that (1, 2) and (2, 1) give unrelated seeds.
  uint64_t h = mix(seed);
  h = mix(h ^ number_of(purpose));
  h = mix(h ^ a);
  return mix(h ^ b);
}

uint64_t rank_seed(uint64_t seed, int rank) { return rank == 0 ? seed : derive_seed(seed, "rank", static_cast<uint64_t>(rank)); }

uint32_t Philox::operator()() {
  if (left_ == 0) {
    block_ = philox_block(key_, stream_, counter_++);
    left_ = 4;
  }
  return block_[static_cast<size_t>(4 - left_--)];
}

uint32_t Philox::below(uint32_t n) {
  if (n == 0) return 0;
  uint64_t product = uint64_t{(*this)()} * n;
  if (static_cast<uint32_t>(product) < n) {
    const uint32_t threshold = (0u - n) % n;
    while (static_cast<uint32_t>(product) < threshold) product = uint64_t{(*this)()} * n;
  }
  return static_cast<uint32_t>(product >> 32);
}

float Philox::normal() {
  const double u = (static_cast<double>((*this)()) + 1.0) * 0x1.0p-32;  // in (0, 1]: log stays finite
  const double v = static_cast<double>((*this)()) * 0x1.0p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace npu_train
