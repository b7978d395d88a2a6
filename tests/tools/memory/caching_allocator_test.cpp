#include "testing.hpp"

#include "tools/memory/caching_allocator.hpp"

#include <random>

using npu_train::detail::CachingAllocatorModel;

namespace {
constexpr int64_t kMega = int64_t{1} << 20;
}

TEST_CASE("small blocks share 2 MiB, middle ones 20 MiB, large ones have their own") {
  CachingAllocatorModel a;
  const auto one = a.take(1);
  CHECK(a.allocated() == 512);
  CHECK(a.reserved() == 2 * kMega);
  a.take(kMega);  // still small
  CHECK(a.reserved() == 2 * kMega);
  a.take(kMega + 1);
  CHECK(a.reserved() == 22 * kMega);
  a.take(9 * kMega);
  CHECK(a.reserved() == 22 * kMega);
  a.take(10 * kMega);  // the rest of the 20 MiB is too small, and this size counts as large
  CHECK(a.reserved() == 32 * kMega);
  a.take(11 * kMega);  // rounded up to a multiple of 2 MiB
  CHECK(a.reserved() == 44 * kMega);
  a.give_back(one);
  CHECK(a.reserved() == 44 * kMega);  // kept for reuse
  CHECK(a.take(700) >= 0);
  CHECK(a.reserved() == 44 * kMega);
}

TEST_CASE("free neighbours join, and the smallest that is large enough is taken") {
  CachingAllocatorModel a;
  const auto x = a.take(4 * kMega), y = a.take(4 * kMega), z = a.take(4 * kMega);
  a.give_back(x);
  a.give_back(y);
  CHECK(a.take(8 * kMega) >= 0);  // in the place of x and y; the 8 MiB after z have the same size and come later
  CHECK(a.reserved() == 20 * kMega);
  a.give_back(z);
  CHECK(a.take(9 * kMega) >= 0);
  CHECK(a.reserved() == 20 * kMega);
}

TEST_CASE("a full device gives its free segments back before it fails") {
  CachingAllocatorModel a(64 * kMega);
  const auto x = a.take(30 * kMega);
  const auto y = a.take(30 * kMega);
  CHECK(a.take(10 * kMega) < 0);
  a.give_back(x);
  CHECK(a.take(34 * kMega) >= 0);
  CHECK(a.reserved() == 64 * kMega);
  a.give_back(y);
  CHECK(a.take(60 * kMega) < 0);
}

TEST_CASE("nothing is lost, whatever the order") {
  std::mt19937 random(7);
  CachingAllocatorModel a;
  std::vector<std::pair<int64_t, int64_t>> held;
  int64_t wanted = 0;
  for (int i = 0; i < 20000; ++i) {
    if (held.empty() || random() % 5 < 3) {
      const int64_t bytes = 1 + random() % (random() % 3 == 0 ? 30 * kMega : kMega);
      held.emplace_back(a.take(bytes), bytes);
      wanted += bytes;
    } else {
      std::swap(held[random() % held.size()], held.back());
      a.give_back(held.back().first);
      wanted -= held.back().second;
      held.pop_back();
    }
    REQUIRE(a.allocated() >= wanted);
    REQUIRE(a.reserved() >= a.allocated());
    if (held.size() > 200) {
      while (!held.empty()) a.give_back(held.back().first), wanted -= held.back().second, held.pop_back();
      REQUIRE(a.allocated() == 0);
    }
  }
  CHECK(a.peak_reserved() >= a.reserved());
}
