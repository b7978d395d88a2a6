#include "testing.hpp"

#include "npu_train/data/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a permutation holds every number once and follows seed and epoch") {
  auto order = permutation(7, 3, 1000);
  CHECK(order == permutation(7, 3, 1000));
  CHECK(order != permutation(7, 4, 1000));
  CHECK(order != permutation(8, 3, 1000));
  CHECK(order != sequence(1000));
  std::sort(order.begin(), order.end());
  CHECK(order == sequence(1000));
  CHECK(permutation(1, 0, 0).empty());
  CHECK(permutation(1, 0, 1) == sequence(1));
}

TEST_CASE("every order of three is as likely") {
  int counts[6] = {};
  for (int64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto order = permutation(5, epoch, 3);
    ++counts[order[0] * 2 + (order[1] > order[2] ? 1 : 0)];
  }
  for (const int count : counts) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("the micro-batches of N ranks, round by round, are those of one process") {
  for (const int64_t size : {0, 1, 7, 8, 24, 50, 67})
    for (const int64_t batch_size : {1, 4, 8})
      for (const bool shuffle : {false, true})
        for (const bool drop_last : {false, true})
          for (int64_t world_size = 1; world_size <= 5; ++world_size) {
            CAPTURE(size);
            CAPTURE(batch_size);
            CAPTURE(drop_last);
            CAPTURE(world_size);
            const auto of_rank = [&](int64_t rank) {
              return DistributedSampler({size, batch_size, shuffle, drop_last, /*seed=*/9, rank, world_size});
            };
            const auto order = shuffle ? permutation(9, 3, size) : sequence(size);
            const int64_t count = drop_last ? size / batch_size : (size + batch_size - 1) / batch_size;
            for (int64_t first = 0; first <= count; first += 3) {
              CAPTURE(first);
              std::vector<int64_t> seen;
              int64_t batches = 0, next_index = first;
              std::vector<DistributedSampler> ranks;
              for (int64_t rank = 0; rank < world_size; ++rank) ranks.push_back(of_rank(rank));
              for (auto& sampler : ranks) sampler.set_epoch(3, first);
              for (int64_t round = 0; round < ranks[0].rounds(); ++round)
                for (auto& sampler : ranks) {
                  CHECK(sampler.rounds() == ranks[0].rounds());
                  CHECK(sampler.index(round) == next_index++);
                  const auto indices = sampler.indices(round);
                  CHECK(indices.empty() == (round >= sampler.rounds_on_rank()));
                  batches += indices.empty() ? 0 : 1;
                  seen.insert(seen.end(), indices.begin(), indices.end());
                }
              CHECK(batches == count - first);
              const auto begin = order.begin() + std::min(first * batch_size, size);
              CHECK(seen == std::vector<int64_t>(begin, drop_last ? order.begin() + count * batch_size : order.end()));
            }
            int64_t batches = 0, samples = 0;
            for (int64_t rank = 0; rank < world_size; ++rank) {
              batches += of_rank(rank).batches_on_rank();
              samples += of_rank(rank).samples_on_rank();
              CHECK(of_rank(rank).batches() == count);
            }
            CHECK(batches == count);
            CHECK(samples == (drop_last ? count * batch_size : size));
          }
}

TEST_CASE("a sampler gives each sample once, where one that deals out single samples repeats some") {
  // torch.utils.data.DistributedSampler gives 4 ranks of 10 samples three each, so two samples occur twice.
  std::vector<int64_t> seen;
  for (int64_t rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler({.size = 10, .shuffle = true, .seed = 1, .rank = rank, .world_size = 4});
    sampler.set_epoch(0);
    for (int64_t round = 0; round < sampler.rounds(); ++round)
      for (const auto i : sampler.indices(round)) seen.push_back(i);
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == sequence(10));
}

TEST_CASE("impossible samplers and positions are refused") {
  const auto kind_of = [](const SamplerOptions& o) { return error_of([&] { DistributedSampler{o}; }).kind(); };
  CHECK(kind_of({.size = 10, .rank = 4, .world_size = 4}) == ErrorKind::Usage);
  CHECK(kind_of({.size = 10, .rank = -1}) == ErrorKind::Usage);
  CHECK(kind_of({.size = 10, .world_size = 0}) == ErrorKind::Usage);
  CHECK(kind_of({.size = -1}) == ErrorKind::Usage);
  CHECK(kind_of({.size = 10, .batch_size = 0}) == ErrorKind::Usage);
  DistributedSampler sampler({.size = 10, .batch_size = 3});
  CHECK(has(error_of([&] { sampler.indices(0); }).what(), "set_epoch"));
  CHECK(has(error_of([&] { sampler.set_epoch(0, 5); }).what(), "4 batches"));
  CHECK(error_of([&] { sampler.set_epoch(0, -1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { sampler.set_epoch(-1); }).kind() == ErrorKind::Usage);
  sampler.set_epoch(0, 4);
  CHECK(sampler.indices(0).empty());
  CHECK(sampler.indices(std::numeric_limits<int64_t>::max()).empty());
  CHECK(error_of([&] { sampler.indices(-1); }).kind() == ErrorKind::Usage);
  DistributedSampler huge({.size = 3, .batch_size = std::numeric_limits<int64_t>::max()});
  huge.set_epoch(0);
  CHECK(huge.indices(0) == sequence(3));
}

TEST_CASE("weighted draws have the frequencies of their weights, and depend only on seed and epoch") {
  std::vector<double> weights(3000, 1.0);
  for (size_t i = 0; i < 1000; ++i) weights[i] = 0;
  for (size_t i = 1000; i < 1500; ++i) weights[i] = 9;
  const auto draws = weighted_draws(7, 0, weights);
  REQUIRE(draws.size() == 3000);
  int64_t heavy = 0;
  for (const auto i : draws) {
    CHECK((i >= 1000 && i < 3000));
    heavy += i < 1500 ? 1 : 0;
  }
  CHECK(heavy == doctest::Approx(2250).epsilon(0.03));  // expected: 4500 of 6000; the standard deviation is 24
  CHECK(weighted_draws(7, 0, weights) == draws);
  CHECK(weighted_draws(7, 1, weights) != draws);
  CHECK(weighted_draws(8, 0, weights) != draws);
  CHECK(weighted_draws(7, 0, {0, 0, 5}) == std::vector<int64_t>{2, 2, 2});
  CHECK(weighted_draws(7, 0, {5, 0, 0}) == std::vector<int64_t>{0, 0, 0});
  for (const auto& bad : std::vector<std::vector<double>>{{}, {0, 0}, {1, -1}, {1, NAN}, {1, INFINITY}})
    CHECK(error_of([&] { weighted_draws(7, 0, bad); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { DistributedSampler({.size = 3, .weights = {1, 2}}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the weighted draws of an epoch are divided among ranks like any order") {
  const std::vector<double> weights = {1, 4, 0, 2, 3, 1, 1};
  const auto sampler = [&](int64_t rank, int64_t ranks) {
    DistributedSampler out({.size = 7, .batch_size = 2, .seed = 5, .rank = rank, .world_size = ranks, .weights = weights});
    out.set_epoch(3);
    return out;
  };
  const auto alone = sampler(0, 1);
  for (int64_t batch = 0; batch < 4; ++batch) CHECK(sampler(batch % 2, 2).indices(batch / 2) == alone.indices(batch));
}

TEST_CASE("an epoch of a subset has its samples once, in the given order or shuffled") {
  const std::vector<int64_t> subset = {9, 2, 5, 14, 7};
  const auto sampler = [&](bool shuffle, int64_t rank = 0, int64_t ranks = 1, bool drop_last = false) {
    return DistributedSampler({.size = 15,
                               .batch_size = 2,
                               .shuffle = shuffle,
                               .drop_last = drop_last,
                               .seed = 3,
                               .rank = rank,
                               .world_size = ranks,
                               .subset = subset});
  };
  CHECK(sampler(false).order(4) == subset);
  CHECK(sampler(false).samples() == 5);
  CHECK(sampler(false).batches() == 3);
  CHECK(sampler(false, 0, 1, /*drop_last=*/true).batches() == 2);
  CHECK(sampler(false, 0, 2).samples_on_rank() == 3);
  CHECK(sampler(false, 1, 2).samples_on_rank() == 2);
  const auto shuffled = sampler(true).order(1);
  CHECK(std::is_permutation(shuffled.begin(), shuffled.end(), subset.begin(), subset.end()));
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 8; ++epoch) orders.insert(sampler(true).order(epoch));
  CHECK(orders.size() > 4);
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto own = sampler(true, rank, 2);
    own.set_epoch(1);
    for (int64_t round = 0; round < own.rounds_on_rank(); ++round) {
      const auto begin = shuffled.begin() + 2 * (2 * round + rank);
      CHECK(own.indices(round) == std::vector<int64_t>(begin, std::min(begin + 2, shuffled.end())));
    }
  }
  const auto error = [](std::vector<int64_t> indices, std::vector<double> weights = {}) {
    return std::string(error_of([&] { DistributedSampler({.size = 3, .weights = weights, .subset = indices}); }).what());
  };
  CHECK(has(error({0, 3}), "the index 3; allowed: 0 to 2"));
  CHECK(has(error({-1}), "the index -1"));
  CHECK(has(error({2, 0, 2}), "the index 2 twice"));
  CHECK(has(error({2}, {1, 1, 1}), "both weights and a subset"));
}
