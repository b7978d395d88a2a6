#include "testing.hpp"

#include "npu_train/core/seed.hpp"

#include <ATen/core/PhiloxRNGEngine.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

using namespace npu_train;

TEST_CASE("the generator has the numbers of libtorch's Philox4x32-10, which gives the published vectors") {
  using Block = std::array<uint32_t, 4>;
  const auto block = [](uint64_t key, uint64_t stream, uint64_t counter) {
    at::Philox4_32 engine(key, stream, counter);
    Block out{};
    for (auto& number : out) number = engine();
    return out;
  };
  for (const uint64_t key : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x299f31d0'a4093822}})
    for (const uint64_t stream : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x03707344'13198a2e}}) {
      Philox random(key, stream);
      for (uint64_t counter = 0; counter < 100; ++counter)
        for (const uint32_t number : block(key, stream, counter)) CHECK(random() == number);
    }
  // Known answers from the authors' library.
  CHECK(block(0, 0, 0) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(block(~0ull, ~0ull, ~0ull) == Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(block(0x299f31d0'a4093822, 0x03707344'13198a2e, 0x85a308d3'243f6a88) == Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the generator walks through its blocks") {
  Philox random(0);
  CHECK(random() == 0x6627e8d5);
  CHECK(random() == 0xe169c58d);
  CHECK(random() == 0xbc57ac4c);
  CHECK(random() == 0x9b00dbd8);
  // Recorded values. All 64 bits of seed and stream count, block by block. A change here would change every run of every user.
  Philox far(0x0123456789abcdef, 0xfedcba9876543210);
  std::vector<uint32_t> drawn(100'000);
  for (auto& number : drawn) number = far();
  CHECK(drawn[0] == 0xaef2adf7);
  CHECK(drawn[4] == 0xec2ab39f);
  CHECK(drawn[99'999] == 0xe96c8ecd);
}

TEST_CASE("numbers are in their ranges and are spread over them") {
  Philox random(7);
  constexpr int n = 20000;
  std::vector<int> hits(10);
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const float u = random.uniform(2.f, 4.f);
    REQUIRE(u >= 2.f);
    REQUIRE(u < 4.f);
    const auto k = random.below(10);
    REQUIRE(k < 10);
    ++hits[k];
    const float g = random.normal();
    REQUIRE(std::isfinite(g));
    sum += g;
    squares += g * g;
  }
  for (const int h : hits) CHECK(std::abs(h - n / 10) < 250);  // 5.9 standard deviations
  CHECK(std::abs(sum / n) < 0.04);
  CHECK(std::abs(squares / n - 1) < 0.06);
  CHECK(random.below(1) == 0);
}

TEST_CASE("seeds of different purposes, epochs and indices differ") {
  std::set<uint64_t> seen;
  for (const uint64_t seed : {0u, 1u, 42u}) {
    for (const char* purpose : {"shuffle", "augment", "init", ""}) {
      for (uint64_t a = 0; a < 10; ++a) {
        for (uint64_t b = 0; b < 10; ++b) seen.insert(derive_seed(seed, purpose, a, b));
      }
    }
  }
  CHECK(seen.size() == 3 * 4 * 100);
  // Recorded values: a change here would change every run of every user.
  CHECK(derive_seed(42, "shuffle", 1, 2) == 0x95845487435ad6e1);
  CHECK(derive_seed(42, "shuffle", 1, 2) != derive_seed(42, "shuffle", 2, 1));
}

TEST_CASE("ranks draw differently, rank 0 as a run alone") {
  CHECK(rank_seed(42, 0) == 42);
  std::set<uint64_t> seen;
  for (int rank = 0; rank < 64; ++rank) seen.insert(rank_seed(42, rank));
  CHECK(seen.size() == 64);
  CHECK(rank_seed(42, 3) != rank_seed(43, 3));
}
