// Sums of gradients in groups of ranks: first inside each group, then between the first ranks of the groups, and back inside each group.
#include "testing.hpp"

#include <algorithm>
#include <map>

#include "dist/compressed_ranks.hpp"
#include "dist/flat_layout.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct Groups {
  int ranks;
  std::string size;
};
// Groups in which the last one is smaller, groups of one rank, and a single group.
const std::vector<Groups> kGroups{{3, "2"}, {4, "2"}, {5, "2"}, {5, "3"}, {7, "3"}, {3, "1"}, {3, "8"}, {4, "auto"}};

at::Tensor whole_number(const Parameter& p, int rank, int64_t window) {
  return (plain_gradient(p, rank, window) * 3).round_().clamp_(-1000, 1000);
}

// Returns the sum of all ranks, in fp64.
at::Tensor total(const Parameter& p, int ranks, int64_t window, const Gradient& gradient) {
  auto sum = at::zeros(p.value.sizes(), at::kDouble);
  for (int r = 0; r < ranks; ++r) sum += gradient(p, r, window).to(at::kDouble);
  return sum;
}

void check_sums(const std::vector<std::vector<Seen>>& seen, const Gradient& gradient, bool exact) {
  const auto parameters = several();
  for (size_t w = 0; w < seen[0].size(); ++w)
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto expected = total(parameters[i], static_cast<int>(seen.size()), static_cast<int64_t>(w), gradient);
      for (const auto& rank : seen) {
        const auto& sum = rank[w].sums[i];
        CHECK(at::equal(sum, seen[0][w].sums[i]));
        if (exact)
          CHECK(at::equal(sum.to(at::kDouble), expected));
        else
          CHECK(at::allclose(sum.to(at::kDouble), expected, 1e-6, 1e-6 * expected.abs().max().item<double>()));
      }
    }
}

}  // namespace

TEST_CASE("all ranks get the sum of all, to the bit of each other; of integers exactly, whatever the groups and what is in flight") {
  for (const auto& groups : kGroups)
    for (const int64_t in_flight : {0, 1, 2}) {
      CAPTURE(groups.ranks);
      CAPTURE(groups.size);
      CAPTURE(in_flight);
      const Setting setting{.ranks = groups.ranks, .bucket_mib = 0.004, .group_size = groups.size, .in_flight = in_flight};
      check_sums(windows_of_ranks(setting, 3, whole_number), whole_number, /*exact=*/true);
      if (in_flight == 0) check_sums(windows_of_ranks(setting, 2), plain_gradient, /*exact=*/false);
    }
}

TEST_CASE("with shards each rank gets its part of that sum") {
  for (const auto sharding : {Sharding::Optimizer, Sharding::Gradients})
    for (const char* compression : {"none", "topk:0.05+int8"})
      for (const auto& groups : kGroups) {
        CAPTURE(groups.ranks);
        CAPTURE(groups.size);
        CAPTURE(compression);
        Setting setting{.ranks = groups.ranks, .compression = compression, .bucket_mib = 0.1, .group_size = groups.size};
        const auto all = windows_of_ranks(setting, 2);
        setting.sharding = sharding;
        setting.in_flight = 1;
        const auto parts = windows_of_ranks(setting, 2);
        for (size_t w = 0; w < 2; ++w)
          for (size_t i = 0; i < all[0][w].sums.size(); ++i) {
            std::vector<at::Tensor> joined;
            for (const auto& rank : parts) joined.push_back(rank[w].sums[i]);
            const auto& sum = all[0][w].sums[i];
            CHECK(at::equal(at::cat(joined), sum.as_strided({sum.numel()}, {1})));
          }
      }
}

TEST_CASE("between groups only their first ranks send: what the times of a window count, and as much as a ring of them needs") {
  for (const auto& groups : kGroups)
    for (const char* compression : {"none", "int8", "topk:0.05"}) {
      CAPTURE(groups.ranks);
      CAPTURE(groups.size);
      CAPTURE(compression);
      const auto network = std::make_shared<Network>(groups.ranks);
      const int size = groups.size == "auto" ? groups.ranks : std::stoi(groups.size);
      std::vector<ReductionTimes> times(static_cast<size_t>(groups.ranks));
      const Setting setting{.ranks = groups.ranks, .compression = compression, .bucket_mib = 0.004, .group_size = groups.size};
      of_ranks<int>(
          setting,
          [&](CompressedRank& rank) {
            rank.window(0, plain_gradient);
            times[static_cast<size_t>(rank.number())] = rank.reducer.times();
            return 0;
          },
          network);
      std::map<int, int64_t> between;  // bytes between groups, by sender
      for (const auto& [ends, bytes] : network->traffic->sent()) {
        const int from = ends.first, to = ends.second;
        if (from / size == to / size) continue;
        CHECK(from % size == 0);
        CHECK(to % size == 0);
        between[from] += bytes;
      }
      const int leaders = (groups.ranks + size - 1) / size;
      CHECK(between.size() == (leaders == 1 ? 0U : static_cast<size_t>(leaders)));
      int64_t of_ring = 0;
      for (const auto& b : npu_train::detail::flat_layout(several(), groups.ranks, static_cast<int64_t>(setting.bucket_mib * 1048576))) {
        const auto bytes = b.numel * static_cast<int64_t>(b.options.dtype().itemsize());
        of_ring += 2 * (bytes - bytes / leaders);
      }
      for (int r = 0; r < groups.ranks; ++r) {
        CHECK(times[static_cast<size_t>(r)].between_bytes() == (between.contains(r) ? between.at(r) : 0));
        CHECK(times[static_cast<size_t>(r)].bytes() >= times[static_cast<size_t>(r)].between_bytes());
        if (!between.contains(r)) continue;
        if (compression == std::string("none"))
          CHECK(between.at(r) == of_ring);
        else
          CHECK(between.at(r) < of_ring / 2);
      }
    }
}

TEST_CASE("between groups compression does what it does between as many ranks, each with the sum of its group") {
  auto methods = kCarrying;
  methods.push_back("topk:0.5+ratio:0.05");
  for (const auto& compression : methods)
    for (const auto& groups : std::vector<Groups>{{4, "2"}, {5, "2"}, {3, "1"}, {7, "3"}}) {
      CAPTURE(compression);
      CAPTURE(groups.ranks);
      CAPTURE(groups.size);
      const int size = std::stoi(groups.size), leaders = (groups.ranks + size - 1) / size;
      const auto of_group = [&](const Parameter& p, int group, int64_t window) {
        auto sum = plain_gradient(p, group * size, window);
        for (int r = group * size + 1; r < std::min(groups.ranks, (group + 1) * size); ++r) sum = sum + plain_gradient(p, r, window);
        return sum;
      };
      const auto expected = windows_of_ranks({.ranks = leaders, .compression = compression, .bucket_mib = 0.01}, 3, of_group);
      const bool bounded = compression.starts_with("powersgd");
      const auto seen = windows_of_ranks(
          {.ranks = groups.ranks, .compression = compression, .bucket_mib = 0.01, .group_size = groups.size, .in_flight = bounded ? 0 : 2},
          3);
      for (const auto& rank : seen)
        for (size_t w = 0; w < 3; ++w)
          for (size_t i = 0; i < rank[w].sums.size(); ++i) CHECK(at::equal(rank[w].sums[i], expected[0][w].sums[i]));
    }
}

TEST_CASE("the errors of the first ranks are saved, and continue to the bit; other ranks have none, and read none") {
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const Setting setting{.ranks = 5, .compression = compression, .group_size = "2"};
    const auto expected = windows_of_ranks(setting, 3);
    const auto carried = of_ranks<CompressionState>(setting, [&](CompressedRank& rank) {
      CHECK(rank.reducer.has_error_feedback());
      for (int64_t w = 0; w < 2; ++w) rank.window(w, plain_gradient);
      rank.reducer.settle(true);
      return rank.reducer.compression_state();
    });
    for (size_t r = 0; r < carried.size(); ++r) {
      const auto* slice = carried[r].slices.find("rank/matrix");
      REQUIRE(slice != nullptr);
      CHECK(slice->value.numel() == (r % 2 == 0 ? 61 * 33 : 0));
      CHECK(slice->whole().sizes() == at::IntArrayRef({3, 61 * 33}));
    }
    const auto saved = joined(carried);
    const auto resumed = of_ranks<Seen>(setting, [&](CompressedRank& rank) {
      rank.window(9, plain_gradient);
      rank.reducer.load_compression_state(saved);
      return rank.window(2, plain_gradient);
    });
    for (const auto& rank : resumed)
      for (size_t i = 0; i < rank.sums.size(); ++i) CHECK(at::equal(rank.sums[i], expected[0][2].sums[i]));
  }
  CHECK_FALSE(of_ranks<int>({.ranks = 2, .compression = "int8", .group_size = "2"}, [](CompressedRank& rank) {
    return rank.reducer.has_error_feedback();  // only sums between groups are compressed, and there is one group
  })[0]);
}

TEST_CASE("groups of ranks and buckets in flight refuse what contradicts them by name") {
  const auto refused = [](DistOptions options, Sharding sharding = Sharding::None) {
    const auto network = std::make_shared<Network>(2);
    std::vector<std::string> messages(2);
    on_ranks(network->agreements, [&](int r) {
      const auto e = error_of([&] { GradientReducer(one_vector(), std::make_shared<InProcessGroup>(network, r), options, sharding); });
      CHECK((e.kind() == ErrorKind::Usage));
      messages[static_cast<size_t>(r)] = e.what();
    });
    return messages[1];
  };
  CHECK(has(refused({.reduction = "ordered", .group_size = "1"}), "allowed with dist.reduction=ordered: none; with groups: auto, native"));
  CHECK(has(refused({.group_size = "1", .reduce = "micro_batch"}), "allowed with dist.reduction=native: window"));
  CHECK(has(refused({.group_size = "1", .compression = "bf16"}), "between groups: none, int8, topk:SHARE"));
  CHECK(has(refused({.group_size = "1", .reduce_dtype = "bf16"}), "dist.reduction=native does not do"));
  for (const char* size : {"0", "-2", "2x", "", "all"}) CHECK(has(refused({.group_size = size}), "allowed: none, auto, or the number"));
  CHECK(has(refused({.group_size = "1", .compression = "int8"}, Sharding::Parameters), "trainer.strategy=zero3 does not allow"));
  CHECK(has(refused({.in_flight = 2}, Sharding::Parameters), "allowed with trainer.strategy=zero3: 0"));
  CHECK(has(refused({.compression = "powersgd:2", .in_flight = 2}), "allowed with dist.compression=powersgd:2: 0"));
  CHECK(has(refused({.in_flight = -1}), "dist.in_flight"));
  CHECK(has(refused({.group_size = "1", .compression = "powersgd:2", .debug = true}), "allowed with both and dist.group_size=1: false"));
  CHECK(has(refused({.group_size = "1", .compression = "topk:0.1", .shard_by = "layer"}, Sharding::Optimizer),
            "divides them among groups; allowed with both: elements"));
}
