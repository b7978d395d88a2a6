#include "npu_train/device/portable_random.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train {
namespace {

thread_local PortableRandom::Position now;

}  // namespace

PortableRandom::PortableRandom(uint64_t seed) : before_(now) { now = {.on = true, .seed = seed, .next = 0}; }
PortableRandom::~PortableRandom() { now = before_; }

PortableRandom::MicroBatch::MicroBatch(std::string_view pass, int64_t attempt, int64_t number)
    : key_(derive_seed(now.seed, pass, static_cast<uint64_t>(attempt), static_cast<uint64_t>(number))), before_(now) {
  now.seed = key_;
  now.next = 0;
}
PortableRandom::MicroBatch::~MicroBatch() { now = before_; }

PortableRandom::Position PortableRandom::position() { return now; }
void PortableRandom::set_position(const Position& position) { now = position; }

at::Tensor PortableRandom::uniform(at::IntArrayRef sizes, const c10::Device& device) {
  check(now.on, ErrorKind::Usage, "PortableRandom", "nothing is on for this thread; make a PortableRandom first, or set rng: portable");
  at::Tensor out = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
  constexpr int64_t kPiece = 4096;  // values per stream; the division depends only on the count, not on the threads
  const uint64_t key = derive_seed(now.seed, "portable", now.next++);
  float* to = out.data_ptr<float>();
  const int64_t count = out.numel();
  at::parallel_for(0, (count + kPiece - 1) / kPiece, 4, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      Philox draw(key, static_cast<uint64_t>(piece));
      for (int64_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) to[i] = draw.uniform();
    }
  });
  return out.to(device);
}

}  // namespace npu_train
