/// 64-bit content hash (XXH3) for checksums of files and tensors. Not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace npu_train {

uint64_t hash64(const void* data, size_t bytes, uint64_t seed = 0);
/// Has no seed parameter, because `hash64("text", 7)` calls the overload above, with 7 as the length.
inline uint64_t hash64(std::string_view text) { return hash64(text.data(), text.size()); }

/// Formats as 16 lower-case hexadecimal digits.
std::string hex64(uint64_t value);

/// Hash of data that arrive in pieces; equal to hash64 of the complete data.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* data, size_t bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace npu_train
