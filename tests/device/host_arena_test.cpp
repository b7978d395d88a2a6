#include "testing.hpp"

#include "npu_train/device/host_arena.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "device/arena_heap.hpp"

namespace npu_train {
namespace {

constexpr size_t kPage = detail::ArenaHeap::kAlignment;

TEST_CASE("the heap fits blocks into the smallest gap and joins neighbours") {
  std::vector<char> space(64 * kPage);
  detail::ArenaHeap heap(space.data(), space.size());
  char* a = static_cast<char*>(heap.allocate(10 * kPage));
  char* b = static_cast<char*>(heap.allocate(1));
  char* c = static_cast<char*>(heap.allocate(3 * kPage));
  char* d = static_cast<char*>(heap.allocate(kPage));
  CHECK(b == a + 10 * kPage);
  CHECK(c == b + kPage);
  heap.release(a);
  heap.release(c);
  CHECK(heap.allocate(2 * kPage) == c);  // takes the gap of 3, not the gap of 10 or the rest
  CHECK(heap.allocate(kPage) == c + 2 * kPage);
  heap.release(b);  // joins the gap before it
  CHECK(heap.allocate(11 * kPage) == a);
  CHECK(heap.high_water() == 15 * kPage);
  CHECK(heap.in_use() == 15 * kPage);
  CHECK(heap.allocate(50 * kPage) == nullptr);
  CHECK(heap.allocate(0) == nullptr);
  CHECK(heap.allocate(~size_t{0}) == nullptr);
  heap.release(d);
  CHECK(heap.allocate(50 * kPage) == d);  // joins the gap after it
}

TEST_CASE("no two blocks share a byte, and everything comes back") {
  std::vector<char> space(4096 * kPage);
  detail::ArenaHeap heap(space.data(), space.size());
  std::mt19937 random(1);
  std::vector<std::pair<unsigned char*, size_t>> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 40 && random() % 2 == 0) {
      const size_t bytes = 1 + random() % (60 * kPage);
      auto* p = static_cast<unsigned char*>(heap.allocate(bytes));
      REQUIRE(p != nullptr);
      REQUIRE(heap.owns(p));
      p[0] = p[bytes - 1] = static_cast<unsigned char>(bytes);
      live.emplace_back(p, bytes);
    } else if (!live.empty()) {
      const size_t k = random() % live.size();
      REQUIRE(live[k].first[0] == static_cast<unsigned char>(live[k].second));
      REQUIRE(live[k].first[live[k].second - 1] == static_cast<unsigned char>(live[k].second));
      heap.release(live[k].first);
      live.erase(live.begin() + static_cast<long>(k));
    }
  }
  for (auto& [p, bytes] : live) heap.release(p);
  CHECK(heap.in_use() == 0);
  CHECK(heap.allocate(space.size()) == space.data());
}

TEST_CASE("tensors of a scope come from the arena, are freed after it, and the previous allocator is restored") {
  auto* before = c10::GetCPUAllocator();
  at::Tensor large, small;
  const auto at_start = HostArena::stats();
  REQUIRE(at_start.reserved > 0);
  {
    const HostArena arena;
    {
      const HostArena inner;
      CHECK(c10::GetCPUAllocator() != before);
    }
    CHECK(c10::GetCPUAllocator() != before);
    large = at::full({1 << 20}, 3.0F);
    small = at::full({16}, 3.0F);
    CHECK(HostArena::stats().in_use == at_start.in_use + (4 << 20));
  }
  CHECK(c10::GetCPUAllocator() == before);
  const at::Tensor outside = at::empty({1 << 20});
  CHECK(HostArena::stats().in_use == at_start.in_use + (4 << 20));
  CHECK(large.sum().item<float>() == 3.0F * (1 << 20));
  large.resize_({0});
  large = small = at::Tensor();
  CHECK(HostArena::stats().in_use == at_start.in_use);
}

TEST_CASE("raw blocks of any size find their way back") {
  const HostArena arena;
  auto* allocator = c10::GetCPUAllocator();
  const auto in_use = HostArena::stats().in_use;
  for (const size_t bytes : {size_t{8}, size_t{1} << 20}) {
    void* p = allocator->raw_allocate(bytes);
    std::memset(p, 1, bytes);
    allocator->raw_deallocate(p);
  }
  CHECK(HostArena::stats().in_use == in_use);
}

TEST_CASE("trimmed gaps are usable again") {
  const HostArena arena;
  at::full({1 << 20}, 7.0F);
  HostArena::trim();
  CHECK(at::full({1 << 20}, 2.0F).sum().item<float>() == 2.0F * (1 << 20));
}

TEST_CASE("threads share it") {
  const HostArena arena;
  const auto in_use = HostArena::stats().in_use;
  std::vector<std::thread> threads;
  std::vector<int> good(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &good] {
      for (int i = 1; i <= 200; ++i) {
        const int64_t size = 20000 + 1000 * (i % 7);
        const at::Tensor x = at::full({size}, static_cast<float>(t));
        good[t] += x.min().item<float>() == static_cast<float>(t) && x.max().item<float>() == static_cast<float>(t);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK((good == std::vector<int>(4, 200)));
  CHECK(HostArena::stats().in_use == in_use);
}

TEST_CASE("a child of a fork can make tensors, whatever another thread was at") {
  const HostArena arena;
  std::atomic<bool> done{false};
  std::thread other([&done] {
    while (!done) at::empty({40000});
  });
  int good = 0;
  for (int i = 0; i < 50 && good == i; ++i) {
    const auto child = ::fork();
    if (child == 0) {
      ::alarm(20);  // ends a child that waits without end
      at::empty({50000});
      ::_exit(0);
    }
    int status = -1;
    good += child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  done = true;
  other.join();
  CHECK(good == 50);
}

TEST_CASE("the environment chooses whether there is an arena") {
  constexpr const char* kVariable = "NPU_TRAIN_ALLOCATOR";
  const auto plain = host_allocator();
  CHECK_FALSE(plain.starts_with("arena"));
  CHECK((plain.starts_with("glibc ") || plain.starts_with("mimalloc ") || plain.starts_with("jemalloc ")));
  for (const char* value : {"", "arena"}) {
    ::setenv(kVariable, value, 1);
    const auto arena = host_arena_from_environment();
    REQUIRE(arena != nullptr);
    CHECK(host_allocator() == "arena, " + plain);
  }
  ::setenv(kVariable, "system", 1);
  CHECK(host_arena_from_environment() == nullptr);
  CHECK(host_allocator() == plain);
  ::setenv(kVariable, "tcmalloc", 1);
  CHECK_THROWS_WITH_AS(host_arena_from_environment(), doctest::Contains("allowed: arena, system"), Error);
  ::unsetenv(kVariable);
}

}  // namespace
}  // namespace npu_train
