#include "npu_train/core/hash.hpp"

#include <array>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace npu_train {

uint64_t hash64(const void* data, size_t bytes, uint64_t seed) {
  return bytes == 0 ? XXH3_64bits_withSeed("", 0, seed) : XXH3_64bits_withSeed(data, bytes, seed);
}

std::string hex64(uint64_t value) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[static_cast<size_t>(i)] = digits[value & 15];
  return out;
}

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(new State) { XXH3_64bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(&state_->xxh, data, bytes);
}

uint64_t Hasher::digest() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace npu_train
