// Compressed gradients of ranks that are threads, compared with plain computations by libtorch.
#include "npu_train/dist/compression.hpp"

#include "testing.hpp"

#include <cmath>

#include "dist/compressed_ranks.hpp"
#include "dist/compression_state.hpp"
#include "dist/rank_processes.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns the scale for these numbers. With fewer than 8 bits, it is the best of four: the scale of the largest number, and three smaller
// ones.
float scale_of(const float* x, size_t n, int bits) {
  const auto largest = static_cast<float>((1 << (bits - 1)) - 1);
  const auto loss = [&](float scale) {
    double out = 0;
    for (size_t i = 0; i < n; ++i) {
      const double lost = std::clamp(std::nearbyint(x[i] / scale), -largest, largest) * scale - x[i];
      out += lost * lost;
    }
    return out;
  };
  float peak = 0;
  for (size_t i = 0; i < n; ++i) peak = std::max(peak, std::fabs(x[i]));
  const float full = peak / largest;
  float best = full;
  if (bits < 8)
    for (const float share : {0.7F, 0.5F, 0.35F})
      if (loss(full * share) < loss(best)) best = full * share;
  return best;
}

// Codes as integers of `bits` bits, with a scale for each 256 numbers of a part. Returns the decoded numbers, and leaves the errors in `x`.
std::vector<float> coded(std::vector<float>& x, int bits) {
  std::vector<float> read(x.size());
  for (size_t begin = 0; begin < x.size(); begin += 256) {
    const auto end = std::min(x.size(), begin + 256);
    const float scale = scale_of(x.data() + begin, end - begin, bits);
    const auto largest = static_cast<float>((1 << (bits - 1)) - 1);
    for (size_t i = begin; i < end; ++i) {
      read[i] = std::clamp(std::nearbyint(x[i] / scale), -largest, largest) * scale;
      x[i] -= read[i];
    }
  }
  return read;
}

std::vector<float> numbers(const at::Tensor& t) { return {t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel()}; }
at::Tensor tensor(const std::vector<float>& x) { return at::tensor(x); }
void add_to(std::vector<float>& to, const std::vector<float>& x) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += x[i];
}

// Returns `sizes`, each raised to at least a twentieth of the largest in its block of 256, or 1 in a block of zeros.
std::vector<float> units_of(const std::vector<float>& sizes) {
  std::vector<float> out(sizes.size(), 1);
  for (size_t begin = 0; begin < out.size(); begin += 256) {
    const auto end = std::min(out.size(), begin + 256);
    const float largest =
        *std::max_element(sizes.begin() + static_cast<std::ptrdiff_t>(begin), sizes.begin() + static_cast<std::ptrdiff_t>(end));
    for (size_t i = begin; i < end && largest > 0; ++i) out[i] = std::max(sizes[i], largest * 0.05F);
  }
  return out;
}

// Like coded(), but divides each number by its unit first.
std::vector<float> coded_in(const std::vector<float>& units, std::vector<float>& x, int bits) {
  auto y = x;
  for (size_t i = 0; i < x.size(); ++i) y[i] /= units[i];
  const auto read = coded(y, bits);
  for (size_t i = 0; i < x.size(); ++i) x[i] -= read[i] * units[i];
  return read;
}

}  // namespace

TEST_CASE("compression: what the option says, and what is refused") {
  CHECK(Compression::parse("none").none());
  CHECK(Compression::parse("bf16").values == "bf16");
  CHECK_FALSE(Compression::parse("fp16").has_error_feedback());
  CHECK(Compression::parse("int8").has_error_feedback());
  const auto both = Compression::parse("topk:0.01+int8");
  CHECK((both.method == Compression::Method::Largest));
  CHECK(both.share == 0.01);
  CHECK(both.values == "int8");
  CHECK(Compression::parse("bf16+ratio:0.1").ratio == 0.1);
  CHECK(Compression::parse("powersgd:4").rank == 4);
  for (const char* wrong : {"", "int4", "topk", "topk:", "topk:0", "topk:1.5", "topk:x", "topk:0.1x", "ratio:-1", "ratio:nan", "powersgd:0",
                            "powersgd:2.5", "powersgd:4+int8", "int8+bf16", "ratio:0.1+topk:0.1", "int8+", "+int8", "none+int8"}) {
    CAPTURE(wrong);
    CHECK((error_of([&] { Compression::parse(wrong); }).kind() == ErrorKind::Usage));
  }
  for (const DistOptions& options :
       {DistOptions{.reduction = "native", .compression = "bf16"}, DistOptions{.reduce_dtype = "bf16", .compression = "int8"},
        DistOptions{.reduce = "micro_batch", .compression = "topk:0.1"}, DistOptions{.compression = "bf16", .compression_start = 1}})
    CHECK((error_of([&] { options.compressed(); }).kind() == ErrorKind::Usage));
  CHECK(DistOptions{.compression = "int8"}.resolved("NCCL").adds_in_order());
  CHECK(DistOptions{.compression = "int8"}.resolved("Gloo", Sharding::Gradients).reduce == "window");
  CHECK(DistOptions{.compression = "bf16"}.resolved("Gloo", Sharding::Gradients).reduce == "micro_batch");
}

TEST_CASE("int8, and ratio as integers of fewer bits in units of recent sums: a plain computation over four windows, and the bytes") {
  constexpr int64_t kWindows = 4;
  struct Code {
    const char* compression;
    int ranks, bits;
  };
  for (const auto& [compression, ranks, bits] : std::vector<Code>{{"int8", 2, 8},
                                                                  {"int8", 3, 8},
                                                                  {"int8", 4, 8},
                                                                  {"ratio:0.07", 2, 2},
                                                                  {"ratio:0.1", 2, 3},
                                                                  {"ratio:0.1", 3, 3},
                                                                  {"ratio:0.15", 4, 4},
                                                                  {"ratio:0.19", 3, 5},
                                                                  {"ratio:0.22", 2, 6},
                                                                  {"ratio:0.24", 4, 7},
                                                                  {"ratio:1", 3, 8}}) {
    CAPTURE(compression);
    CAPTURE(ranks);
    const auto n = static_cast<size_t>(ranks), part = static_cast<size_t>(kElements) / n;
    const auto seen = windows_of_ranks({.ranks = ranks, .compression = compression, .parameters = one_vector}, kWindows);
    std::vector<std::vector<float>> left(n, std::vector<float>(kElements)), left_of_sum(n, std::vector<float>(part));
    std::vector<float> sizes(kElements), units(kElements, 1);
    const auto of_part = [&](const std::vector<float>& x, size_t owner) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(owner * part);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(part));
    };
    for (int64_t w = 0; w < kWindows; ++w) {
      if (bits < 8) units = units_of(sizes);
      std::vector<std::vector<float>> sums(n, std::vector<float>(part));
      for (size_t r = 0; r < n; ++r) {
        add_to(left[r], numbers(plain_gradient(one_vector()[0], static_cast<int>(r), w)));
        for (size_t owner = 0; owner < n; ++owner) {
          auto own = of_part(left[r], owner);
          const auto read = coded_in(of_part(units, owner), own, bits);
          std::copy(own.begin(), own.end(), left[r].begin() + static_cast<std::ptrdiff_t>(owner * part));
          if (r == 0)
            sums[owner] = read;
          else
            add_to(sums[owner], read);
        }
      }
      std::vector<at::Tensor> parts;
      for (size_t owner = 0; owner < n; ++owner) {
        const auto own_units = of_part(units, owner);
        for (size_t i = 0; i < part; ++i) sums[owner][i] *= own_units[i];
        add_to(sums[owner], left_of_sum[owner]);
        parts.push_back(tensor(coded_in(own_units, sums[owner], bits)) * tensor(own_units));
        left_of_sum[owner] = sums[owner];
      }
      const auto expected = at::cat(parts);
      const auto expected_sums = numbers(expected);
      for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = sizes[i] * 0.95F + std::fabs(expected_sums[i]) * 0.05F;
      const auto blocks = static_cast<int64_t>((part + 255) / 256), words = static_cast<int64_t>((part + 7) / 8);
      for (const auto& rank : seen) {
        CHECK(at::equal(rank[static_cast<size_t>(w)].sums[0], expected));
        CHECK(rank[static_cast<size_t>(w)].bytes == 2 * (ranks - 1) * (words * bits + 4 * blocks));
        CHECK(rank[static_cast<size_t>(w)].bytes == rank[static_cast<size_t>(w)].counted);
      }
    }
  }
}

TEST_CASE("ratio: gradients that were next to nothing do not make ordinary ones overflow") {
  const auto gradient = [](const Parameter& p, int rank, int64_t window) {
    return plain_gradient(p, rank, window) * (window == 0 ? 1e-38 : 1);
  };
  const auto seen = windows_of_ranks({.compression = "ratio:0.1", .parameters = one_vector}, 2, gradient);
  const auto expected = gradient(one_vector()[0], 0, 1) + gradient(one_vector()[0], 1, 1);
  const auto& sum = seen[0][1].sums[0];
  CHECK(at::isfinite(sum).all().item<bool>());
  CHECK((sum - expected).norm().item<double>() < 0.5 * expected.norm().item<double>());
}

TEST_CASE("topk: the largest elements of each rank with what earlier windows left, added in the order of ranks") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    const auto seen = windows_of_ranks({.ranks = ranks, .compression = "topk:0.01", .parameters = one_vector}, 4);
    const int64_t k = kElements / 100;
    std::vector<at::Tensor> left(static_cast<size_t>(ranks), at::zeros({kElements}));
    for (int64_t w = 0; w < 4; ++w) {
      auto expected = at::zeros({kElements});
      for (int r = 0; r < ranks; ++r) {
        auto& own = left[static_cast<size_t>(r)];
        own = own + plain_gradient(one_vector()[0], r, w);
        const auto limit = std::get<0>(at::topk(own.abs(), k))[k - 1];
        const auto sent = at::where(own.abs() >= limit, own, 0.0);
        REQUIRE(sent.count_nonzero().item<int64_t>() == k);
        expected = expected + sent;
        own = own - sent;
      }
      for (const auto& rank : seen) {
        CHECK(at::equal(rank[static_cast<size_t>(w)].sums[0], expected));
        CHECK(rank[static_cast<size_t>(w)].bytes == (ranks - 1) * 8 * k);
        CHECK(rank[static_cast<size_t>(w)].bytes == rank[static_cast<size_t>(w)].counted);
      }
    }
  }
}

TEST_CASE("ratio: at most that share of the bytes that fp32 sends, places included, and nearly as many") {
  for (const int ranks : {2, 3, 4})
    for (const auto sharding : {Sharding::None, Sharding::Optimizer})
      for (const auto& code : {std::string(), std::string("+int8"), std::string("+bf16")}) {
        CAPTURE(ranks);
        CAPTURE(code);
        const auto bytes = [&](const std::string& compression) {
          return windows_of_ranks({.ranks = ranks, .compression = compression, .sharding = sharding, .parameters = one_vector}, 1)[0][0]
              .bytes;
        };
        const auto all = static_cast<double>(bytes("none"));
        for (const double ratio : {0.05, 0.1}) {  // without a code, lists are sent; with one, integers of 3 bits
          CAPTURE(ratio);
          const auto sent = static_cast<double>(bytes("ratio:" + std::to_string(ratio) + code));
          CHECK(sent <= ratio * all);
          CHECK(sent > 0.9 * ratio * all);
        }
      }
}

TEST_CASE("powersgd: the sums of a computation in fp64 with QR, over three windows with errors and the factors of the window before") {
  constexpr int kRanks = 3;
  std::map<std::string, at::Tensor> factors;  // initial factors
  const Setting setting{.ranks = kRanks, .compression = "powersgd:3"};
  const auto seen = of_ranks<std::vector<Seen>>(setting, [&](CompressedRank& rank) {
    if (rank.number() == 0)
      for (const auto& [name, factor] : rank.reducer.compression_state().shared.tensors)
        factors[name] = factor.to(at::kDouble, false, true);
    std::vector<Seen> out;
    for (int64_t w = 0; w < 3; ++w) out.push_back(rank.window(w, plain_gradient));
    return out;
  });
  REQUIRE(factors.size() == 3);
  const auto parameters = several();
  int64_t bytes = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& p = parameters[i];
    CAPTURE(p.name);
    const bool is_matrix = p.value.dim() > 1;
    std::vector<at::Tensor> left(kRanks, at::zeros({p.value.size(0), p.value.numel() / p.value.size(0)}, at::kDouble));
    auto q = is_matrix ? factors.at("factor/" + p.name) : at::Tensor();
    for (int64_t w = 0; w < 3; ++w) {
      auto sum = at::zeros_like(left[0]);
      for (int r = 0; r < kRanks; ++r) {
        auto& own = left[static_cast<size_t>(r)];
        own = own + plain_gradient(p, r, w).to(at::kDouble).reshape(own.sizes());
        sum = sum + own;
      }
      if (is_matrix) {
        const auto basis = std::get<0>(at::linalg_qr(sum.matmul(q)));
        q = sum.t().matmul(basis);
        sum = basis.matmul(q.t());
        for (auto& own : left) own = own - basis.matmul(basis.t()).matmul(own);
      } else {
        for (auto& own : left) own.zero_();
      }
      for (const auto& rank : seen) {
        const auto& got = rank[static_cast<size_t>(w)].sums[i];
        CHECK(at::allclose(got.to(at::kDouble), sum.reshape(p.value.sizes()), 1e-4, 1e-4 * sum.abs().max().item<double>()));
        CHECK(at::equal(got, seen[0][static_cast<size_t>(w)].sums[i]));
      }
    }
  }
  // Sends three columns of (16 + 72), (61 + 33) and (30 + 40), and seven biases; fp64 is sent unchanged: 65 numbers, padded.
  const int64_t first = 3 * (16 + 61 + 30) + 7, second = 3 * (72 + 33 + 40);
  for (const auto n : {first, second}) bytes += (n + kRanks - 1) / kRanks * 4 * 2 * (kRanks - 1);
  CHECK(seen[0][0].bytes == bytes + 2 * (64 * kRanks) / kRanks * (kRanks - 1) * 8);
  CHECK(seen[0][0].bytes == seen[0][0].counted);
}

TEST_CASE("powersgd reproduces a matrix of its rank, also one of a smaller rank after a zero, and keeps its columns") {
  const auto gradient = [](const Parameter& p, int rank, int64_t window) {
    if (p.value.dim() < 2) return plain_gradient(p, rank, window);
    const auto rows = p.value.size(0), columns = p.value.numel() / rows;
    auto out = at::outer(drawn({rows}, 5 + rank), drawn({columns}, 7));
    if (window == 2) out = out + at::outer(drawn({rows}, 9), drawn({columns}, 11));
    return (window == 1 ? at::zeros_like(out) : out).reshape(p.value.sizes());
  };
  const auto seen = windows_of_ranks({.ranks = 2, .compression = "powersgd:2"}, 3, gradient);
  for (size_t w = 0; w < 3; ++w)
    for (size_t i = 0; i < seen[0][w].sums.size(); ++i) {
      CAPTURE(w);
      CAPTURE(i);
      const auto window = static_cast<int64_t>(w);
      const auto expected = gradient(several()[i], 0, window) + gradient(several()[i], 1, window);
      const auto largest = gradient(several()[i], 0, 0).abs().max().item<double>();
      // The gradient of window 1 is 0, so its factors come from rounding errors, which may point in nearly one direction.
      const double most = w == 2 ? 1e-3 : 2e-5;
      CHECK(at::allclose(seen[1][w].sums[i], expected, 1e-4, most * largest));
    }
}

TEST_CASE("ranks that compress differently get an error, and a process alone compresses nothing") {
  const auto network = std::make_shared<Network>(2);
  const auto errors = errors_of_ranks(network->agreements, [&](int r) {
    CompressedRank rank(network, r, several(), {.compression = r == 0 ? "none" : "int8"}, Sharding::None);
  });
  for (const auto& error : errors) {
    REQUIRE(error.has_value());
    CHECK(has(error->what(), "dist.compression=int8"));
  }
  const auto alone = windows_of_ranks({.ranks = 1, .compression = "topk:0.01", .parameters = one_vector}, 1);
  CHECK(at::equal(alone[0][0].sums[0], plain_gradient(one_vector()[0], 0, 0)));
}

TEST_CASE("a later start: sums as without compression, then those of a run that begins to compress; skipped steps do not count") {
  constexpr int64_t kStart = 2, kWindows = 4;
  constexpr int64_t kSkipped = 1;  // this window is run again
  for (const auto& compression : kCarrying)
    for (const auto sharding : {Sharding::None, Sharding::Gradients})
      for (const char* group_size : {"none", "2"}) {
        CAPTURE(compression);
        CAPTURE(group_size);
        Setting setting{.ranks = 4, .compression = compression, .sharding = sharding, .group_size = group_size};
        const auto of_window = [&](CompressedRank& rank, int64_t w) { return rank.window(w, plain_gradient); };
        const auto late = windows_of_ranks(setting, kWindows - kStart, [](const Parameter& p, int rank, int64_t window) {
          return plain_gradient(p, rank, window + kStart);
        });
        setting.compression_start = kStart;
        const auto seen = of_ranks<std::vector<Seen>>(setting, [&](CompressedRank& rank) {
          std::vector<Seen> out;
          for (int64_t w = 0; w < kWindows; ++w) {
            if (w == kSkipped) {
              of_window(rank, w);
              rank.reducer.settle(false);
            }
            out.push_back(of_window(rank, w));
          }
          return out;
        });
        setting.compression = "none";
        setting.compression_start = 0;
        const auto complete = windows_of_ranks(setting, kStart);
        for (size_t r = 0; r < seen.size(); ++r)
          for (size_t w = 0; w < kWindows; ++w)
            for (size_t i = 0; i < seen[r][w].sums.size(); ++i) {
              const auto& expected = w < kStart ? complete[r][w] : late[r][w - kStart];
              CHECK(at::equal(seen[r][w].sums[i], expected.sums[i]));
            }
      }
}

TEST_CASE("a later start is part of the state, and a checkpoint of either phase can be loaded in the other") {
  const Setting setting{.compression = "int8", .parameters = one_vector, .compression_start = 2};
  const auto seen = of_ranks<std::vector<at::Tensor>>(setting, [&](CompressedRank& rank) {
    const auto sum = [&](int64_t w) { return rank.window(w, plain_gradient).sums[0]; };
    std::vector<State> states;
    std::vector<at::Tensor> out;
    for (int64_t w = 0; w < 4; ++w) {
      rank.reducer.settle(true);
      states.push_back(npu_train::detail::own_state(rank.reducer.compression_state()));
      for (auto& [name, tensor] : states.back().tensors) tensor = tensor.clone();
      out.push_back(sum(w));
    }
    for (int64_t w : {3, 1, 2}) {
      rank.reducer.load_compression_state(states[static_cast<size_t>(w)]);
      out.push_back(sum(w));
    }
    return out;
  });
  for (const auto& sums : seen) {
    CHECK(at::equal(sums[4], sums[3]));
    CHECK(at::equal(sums[5], sums[1]));
    CHECK(at::equal(sums[6], sums[2]));
  }
}

TEST_CASE("over Gloo between processes: equal sums on all ranks, and again in another run") {
  for (const auto& compression : {std::string("int8"), std::string("topk:0.1+int8"), std::string("ratio:0.3"), std::string("powersgd:2")})
    for (const char* sharding : {"sharding=none", "sharding=gradients"}) {
      CAPTURE(compression);
      const std::vector<std::string> command{kRankProgram, "gradients", sharding, "compression=" + compression, "reduce=auto"};
      const auto first = run_ranks(2, command), second = run_ranks(2, command);
      for (size_t r = 0; r < 2; ++r) {
        REQUIRE_MESSAGE(first[r].ok(), first[r].output);
        CHECK(first[r].output == first[0].output);
        CHECK(first[r].output == second[r].output);
      }
    }
}
