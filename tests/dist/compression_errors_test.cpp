// The error feedback of compression from window to window: skips, absent gradients and restarts must not lose anything.
#include "testing.hpp"

#include "dist/compressed_ranks.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("what windows leave out is not lost: sums and errors together are the uncompressed gradients, with and without shards") {
  constexpr int64_t kWindows = 5;
  for (const auto& compression : kCarrying)
    for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Gradients}) {
      CAPTURE(compression);
      CAPTURE(static_cast<int>(sharding));
      constexpr int kRanks = 3;
      std::vector<std::vector<Seen>> seen(kRanks);
      const auto carried = of_ranks<CompressionState>(
          {.ranks = kRanks, .compression = compression, .sharding = sharding, .bucket_mib = 0.004}, [&](CompressedRank& rank) {
            for (int64_t w = 0; w < kWindows; ++w) seen[static_cast<size_t>(rank.number())].push_back(rank.window(w, plain_gradient));
            rank.reducer.settle(true);
            return rank.reducer.compression_state();
          });
      const auto errors = joined(carried);
      const auto parameters = several();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto& p = parameters[i];
        CAPTURE(p.name);
        const auto in_memory = [](const at::Tensor& t) { return t.as_strided({t.numel()}, {1}).to(at::kDouble); };
        auto expected = at::zeros({p.value.numel()}, at::kDouble), got = at::zeros({p.value.numel()}, at::kDouble);
        for (int64_t w = 0; w < kWindows; ++w) {
          for (int r = 0; r < kRanks; ++r) expected += in_memory(at::empty_like(p.value.detach()).copy_(plain_gradient(p, r, w)));
          if (sharding == Sharding::None) {
            got += in_memory(seen[0][static_cast<size_t>(w)].sums[i]);
          } else {
            std::vector<at::Tensor> parts;
            for (const auto& rank : seen) parts.push_back(rank[static_cast<size_t>(w)].sums[i].to(at::kDouble));
            got += at::cat(parts);
          }
        }
        if (const auto rows = errors.tensors.find("error/rank/" + p.name); rows != errors.tensors.end()) got += rows->second.sum(0);
        if (const auto sums = errors.tensors.find("error/sum/" + p.name); sums != errors.tensors.end()) got += sums->second;
        CHECK(at::allclose(got, expected, 1e-5, 1e-5 * expected.abs().max().item<double>()));
      }
    }
}

TEST_CASE("all ranks have equal sums, and shards are parts of them") {
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const auto all = windows_of_ranks({.ranks = 3, .compression = compression, .bucket_mib = 0.004}, 3);
    const auto shards = windows_of_ranks({.ranks = 3, .compression = compression, .sharding = Sharding::Gradients, .bucket_mib = 0.004}, 3);
    for (size_t w = 0; w < 3; ++w)
      for (size_t i = 0; i < all[0][w].sums.size(); ++i) {
        for (const auto& rank : all) CHECK(at::equal(rank[w].sums[i], all[0][w].sums[i]));
        // Without shards, int8 codes the sums once more, and ratio gives other bits.
        if (compression == "int8" || compression.starts_with("ratio")) continue;
        std::vector<at::Tensor> parts;
        for (const auto& rank : shards) parts.push_back(rank[w].sums[i]);
        const auto& sum = all[0][w].sums[i];
        CHECK(at::equal(at::cat(parts), sum.as_strided({sum.numel()}, {1})));
      }
  }
}

TEST_CASE("what is kept of a parameter without a gradient follows the scale of the losses too") {
  const auto gradient = [](const Parameter& p, int rank, int64_t window) {
    return window == 1 && p.name == "bias" ? at::Tensor() : plain_gradient(p, rank, window);
  };
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const auto plain = windows_of_ranks({.ranks = 2, .compression = compression}, 3, gradient);
    const auto scaled = of_ranks<Seen>({.ranks = 2, .compression = compression}, [&](CompressedRank& rank) {
      rank.window(0, gradient, 1);
      rank.window(1, gradient, 0.25);
      return rank.window(2, gradient, 0.25);
    });
    for (size_t r = 0; r < 2; ++r)
      for (size_t i = 0; i < scaled[r].sums.size(); ++i) CHECK(at::equal(scaled[r].sums[i], plain[r][2].sums[i] * 0.25));
  }
}

TEST_CASE("a step that is not taken leaves no error, and errors follow the scale of the losses") {
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const auto plain = windows_of_ranks({.ranks = 2, .compression = compression}, 2);
    const auto skipped = of_ranks<std::vector<Seen>>({.ranks = 2, .compression = compression}, [&](CompressedRank& rank) {
      std::vector<Seen> out{rank.window(0, plain_gradient, 4)};
      rank.reducer.settle(true);
      rank.window(7, plain_gradient, 4);
      rank.reducer.settle(false);
      out.push_back(rank.window(1, plain_gradient, 0.5));
      return out;
    });
    for (size_t r = 0; r < 2; ++r)
      for (size_t i = 0; i < plain[r][0].sums.size(); ++i) {
        CHECK(at::equal(skipped[r][0].sums[i], plain[r][0].sums[i] * 4));
        CHECK(at::equal(skipped[r][1].sums[i], plain[r][1].sums[i] * 0.5));
      }
  }
}

TEST_CASE("a number that is not finite on one rank arrives on every rank") {
  auto methods = kCarrying;
  methods.insert(methods.end(), {"bf16", "fp16"});
  for (const auto& compression : methods)
    for (const double bad : {kInf, -kInf, kNaN})
      for (const char* name : {"conv", "bias"}) {
        CAPTURE(compression);
        CAPTURE(bad);
        const auto gradient = [&](const Parameter& p, int rank, int64_t window) {
          auto out = plain_gradient(p, rank, window);
          if (p.name == name && rank == 1) out.view({-1})[3] = bad;
          return out;
        };
        const auto seen = windows_of_ranks({.ranks = 3, .compression = compression}, 1, gradient);
        const size_t i = std::string(name) == "conv" ? 0 : 1;
        for (const auto& rank : seen) CHECK_FALSE(at::isfinite(rank[0].sums[i]).all().item<bool>());
      }
}

TEST_CASE("a parameter without a gradient on any rank keeps its error") {
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const auto gradient = [](const Parameter& p, int rank, int64_t window) {
      return p.name == "matrix" && window == 1 ? at::Tensor() : plain_gradient(p, rank, window);
    };
    const auto states = of_ranks<std::vector<CompressionState>>({.ranks = 2, .compression = compression}, [&](CompressedRank& rank) {
      std::vector<CompressionState> out;
      for (int64_t w = 0; w < 2; ++w) {
        const auto seen = rank.window(w, gradient);
        CHECK(seen.sums[2].defined() == (w == 0));
        rank.reducer.settle(true);
        out.push_back(rank.reducer.compression_state());
      }
      return out;
    });
    int64_t kept = 0;
    for (const auto& rank : states)
      for (const char* of : {"rank/matrix", "sum/matrix"}) {
        const auto* before = rank[0].slices.find(of);
        if (before == nullptr) continue;
        CHECK(at::equal(before->value, rank[1].slices.find(of)->value));
        kept += before->value.count_nonzero().item<int64_t>();
      }
    CHECK(kept > 0);
  }
}

TEST_CASE("a saved state continues to the bit, for other sizes of buckets too; fewer ranks take over the errors of all") {
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const bool by_bucket = compression != "powersgd:2";  // all other compressions select and encode by bucket
    const auto expected = windows_of_ranks({.ranks = 3, .compression = compression}, 3);
    const auto saved = joined(of_ranks<CompressionState>({.ranks = 3, .compression = compression}, [&](CompressedRank& rank) {
      for (int64_t w = 0; w < 2; ++w) rank.window(w, plain_gradient);
      rank.reducer.settle(true);
      return rank.reducer.compression_state();
    }));
    const auto resumed =
        of_ranks<Seen>({.ranks = 3, .compression = compression, .bucket_mib = by_bucket ? 25 : 0.004}, [&](CompressedRank& rank) {
          rank.window(9, plain_gradient);  // the loaded state must replace all that this window leaves
          rank.reducer.load_compression_state(saved);
          return rank.window(2, plain_gradient);
        });
    for (size_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < resumed[r].sums.size(); ++i) CHECK(at::equal(resumed[r].sums[i], expected[r][2].sums[i]));
    for (const auto& other : {compression, std::string("topk:0.1")}) {
      const auto fewer = joined(of_ranks<CompressionState>({.ranks = 2, .compression = other}, [&](CompressedRank& rank) {
        rank.reducer.load_compression_state(saved);
        return rank.reducer.compression_state();
      }));
      for (const auto& p : several()) {
        const auto all = [&](const State& state) {
          auto out = at::zeros({p.value.numel()}, at::kDouble);
          if (const auto found = state.tensors.find("error/rank/" + p.name); found != state.tensors.end()) out += found->second.sum(0);
          if (const auto found = state.tensors.find("error/sum/" + p.name); found != state.tensors.end()) out += found->second;
          return out;
        };
        CHECK(at::allclose(all(fewer), all(saved), 1e-5, 1e-5));
      }
    }
  }
  auto wrong = of_ranks<int>({.ranks = 2, .compression = "int8"}, [](CompressedRank& rank) {
    State of_another;
    of_another.values["scale"] = 1.0;
    of_another.tensors["error/rank/matrix"] = at::zeros({2, 5});
    CHECK((error_of([&] { rank.reducer.load_compression_state(of_another); }).kind() == ErrorKind::Checkpoint));
    return 0;
  });
  CHECK(wrong.size() == 2);
}
