#include <array>
#include <cmath>
#include <cstring>

#include "npu_train/data/download.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

/// RFC 1321.
class Md5 {
 public:
  void update(const uint8_t* data, size_t bytes) {
    total_ += bytes;
    while (bytes > 0) {
      const size_t take = std::min(bytes, block_.size() - used_);
      std::memcpy(block_.data() + used_, data, take);
      used_ += take;
      data += take;
      bytes -= take;
      if (used_ == block_.size()) flush();
    }
  }

  std::string digest() {
    const uint64_t bits = total_ * 8;
    const uint8_t one = 0x80, zero = 0;
    update(&one, 1);
    while (used_ != 56) update(&zero, 1);
    uint8_t length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (8 * i));
    update(length, 8);
    std::string text;
    for (const uint32_t word : state_) {
      for (int i = 0; i < 4; ++i) {
        const uint32_t byte = (word >> (8 * i)) & 0xff;
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
      }
    }
    return text;
  }

 private:
  void flush() {
    static constexpr int kShifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    static constexpr int kStart[4] = {0, 1, 5, 0}, kStep[4] = {1, 5, 3, 7};
    static const auto kSines = [] {
      std::array<uint32_t, 64> table{};
      for (int i = 0; i < 64; ++i) table[i] = static_cast<uint32_t>(std::floor(std::abs(std::sin(i + 1.0)) * 4294967296.0));
      return table;
    }();
    std::array<uint32_t, 16> words;
    for (int i = 0; i < 16; ++i) {
      words[i] = 0;
      for (int k = 0; k < 4; ++k) words[i] |= static_cast<uint32_t>(block_[4 * i + k]) << (8 * k);
    }
    auto [a, b, c, d] = state_;
    for (int i = 0; i < 64; ++i) {
      const int round = i / 16;
      const uint32_t f = round == 0 ? (b & c) | (~b & d) : round == 1 ? (d & b) | (~d & c) : round == 2 ? b ^ c ^ d : c ^ (b | ~d);
      const uint32_t sum = a + f + kSines[i] + words[(kStart[round] + kStep[round] * (i % 16)) % 16];
      const int shift = kShifts[round][i % 4];
      a = d;
      d = c;
      c = b;
      b += (sum << shift) | (sum >> (32 - shift));
    }
    state_[0] += a;
    state_[1] += b;
    state_[2] += c;
    state_[3] += d;
    used_ = 0;
  }

  std::array<uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<uint8_t, 64> block_{};
  size_t used_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

std::string md5_of_file(const std::string& path) {
  const ReadableFile file(path);
  Md5 md5;
  std::vector<uint8_t> buffer(size_t{1} << 20);
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const size_t bytes = std::min<uint64_t>(buffer.size(), file.size() - at);
    file.read(at, buffer.data(), bytes);
    md5.update(buffer.data(), bytes);
  }
  return md5.digest();
}

}  // namespace npu_train
