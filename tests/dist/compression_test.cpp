// Compressed gradients of ranks that are threads, against plain computations with libtorch.
#include "npu_train/dist/compression.hpp"

#include "testing.hpp"

#include <cmath>
#include <numeric>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "dist/in_process_group.hpp"
#include "dist/ranks.hpp"
#include "npu_train/dist/data_parallel.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Numbers of any size and sign, the same for equal arguments.
at::Tensor drawn(at::IntArrayRef sizes, int64_t seed) {
  const auto n = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  const auto x = at::arange(n, at::kDouble) * 0.7391 + 13.7 * static_cast<double>(seed);
  return (x.sin() * (3.1 * (x * 1.7).cos()).exp()).to(at::kFloat).reshape(sizes);
}

// One parameter whose bucket has no padding, for up to 4 ranks.
constexpr int64_t kElements = 64 * 12 * 5;
ParameterSet one_vector() {
  ParameterSet out;
  out.add({.name = "vector", .value = at::zeros({kElements}).requires_grad_(true)});
  return out;
}

ParameterSet several() {
  ParameterSet out;
  const auto add = [&](const char* name, at::Tensor value) { out.add({.name = name, .value = value.requires_grad_(true)}); };
  add("conv", at::zeros({16, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  add("bias", at::zeros({7}));
  add("matrix", at::zeros({61, 33}));
  add("transposed", at::zeros({40, 30}).t());
  add("double", at::zeros({65}, at::kDouble));
  return out;
}

using Gradient = std::function<at::Tensor(const Parameter&, int rank, int64_t window)>;
at::Tensor plain_gradient(const Parameter& p, int rank, int64_t window) {
  return drawn(p.value.sizes(), 100 * window + 10 * rank + static_cast<int64_t>(p.name.size())).to(p.value.scalar_type());
}

// What a rank sees of a window.
struct Seen {
  std::vector<at::Tensor> sums{};  // of each parameter, or of its slice; undefined where no rank has a gradient
  int64_t bytes = 0, counted = 0;
};

class Rank {
 public:
  Rank(const std::shared_ptr<Network>& network, int rank, ParameterSet parameters, DistOptions options, Sharding sharding)
      : parameters_(std::move(parameters)),
        group_(std::make_shared<InProcessGroup>(network, rank)),
        reducer(parameters_, group_, options, sharding) {}

  Seen window(int64_t number, const Gradient& gradient, double scale = 1) {
    parameters_.zero_grad();
    reducer.own().zero_grad();
    reducer.set_gradient_scale(scale);
    reducer.begin_window(1);
    reducer.begin_backward(true);
    at::Tensor loss;
    for (const auto& p : parameters_) {
      const auto factor = gradient(p, group_->rank(), number);
      if (!factor.defined()) continue;
      const auto term = (p.value * factor * scale).sum().to(at::kDouble);
      loss = loss.defined() ? loss + term : term;
    }
    const auto before = group_->counts().bytes;
    loss.backward();
    reducer.finish();
    Seen out{.bytes = reducer.times().bytes(), .counted = group_->counts().bytes - before};
    for (const auto& p : reducer.own()) out.sums.push_back(p.value.grad().defined() ? p.value.grad().clone() : at::Tensor());
    return out;
  }
  int number() const { return group_->rank(); }
  int ranks() const { return group_->size(); }

 private:
  ParameterSet parameters_;
  std::shared_ptr<InProcessGroup> group_;

 public:
  GradientReducer reducer;
};

struct Setting {
  int ranks = 2;
  std::string compression = "none";
  Sharding sharding = Sharding::None;
  double bucket_mib = 25;
  ParameterSet (*parameters)() = several;
};

// What `body` returns on each rank.
template <class Result, class Fn>
std::vector<Result> of_ranks(const Setting& setting, Fn body) {
  const auto network = std::make_shared<Network>(setting.ranks);
  std::vector<Result> out(static_cast<size_t>(setting.ranks));
  on_ranks(network->agreements, [&](int r) {
    Rank rank(network, r, setting.parameters(), {.compression = setting.compression, .bucket_mib = setting.bucket_mib}, setting.sharding);
    out[static_cast<size_t>(r)] = body(rank);
  });
  return out;
}

std::vector<std::vector<Seen>> windows_of_ranks(const Setting& setting, int64_t windows, const Gradient& gradient = plain_gradient) {
  return of_ranks<std::vector<Seen>>(setting, [&](Rank& rank) {
    std::vector<Seen> out;
    for (int64_t w = 0; w < windows; ++w) out.push_back(rank.window(w, gradient));
    return out;
  });
}

// Plain int8 with a scale for each 256 numbers of a part; returns what is read, `x` keeps what is lost.
std::vector<float> coded(std::vector<float>& x) {
  std::vector<float> read(x.size());
  for (size_t begin = 0; begin < x.size(); begin += 256) {
    const auto end = std::min(x.size(), begin + 256);
    float peak = 0;
    for (size_t i = begin; i < end; ++i) peak = std::max(peak, std::fabs(x[i]));
    const float scale = peak / 127.0F;
    for (size_t i = begin; i < end; ++i) {
      read[i] = std::nearbyint(x[i] / scale) * scale;
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

const std::vector<std::string> kCarrying{"int8",           "topk:0.05", "topk:0.05+int8", "topk:0.05+bf16",
                                         "topk:0.05+fp16", "ratio:0.2", "powersgd:2"};

// The errors of all ranks, as a checkpoint has them: rows and sums joined.
State joined(const std::vector<CarriedState>& of_ranks) {
  State out = of_ranks[0].shared;
  for (const auto& rank : of_ranks)
    for (const auto& p : rank.slices) {
      auto& to = out.tensors["error/" + p.name];
      if (!to.defined()) to = at::full(p.whole().sizes(), kNaN, at::kFloat);
      to.view({-1}).narrow(0, p.begin, p.value.numel()).copy_(p.value);
    }
  return out;
}

}  // namespace

TEST_CASE("compression: what the option says, and what is refused") {
  CHECK(Compression::parse("none").none());
  CHECK(Compression::parse("bf16").values == "bf16");
  CHECK_FALSE(Compression::parse("fp16").carries_errors());
  CHECK(Compression::parse("int8").carries_errors());
  const auto both = Compression::parse("topk:0.01+int8");
  CHECK((both.method == Compression::Method::Largest));
  CHECK(both.share == 0.01);
  CHECK(both.values == "int8");
  CHECK(Compression::parse("bf16+ratio:0.1").ratio == 0.1);
  CHECK(Compression::parse("powersgd:4").rank == 4);
  for (const char* wrong : {"", "int4", "topk", "topk:", "topk:0", "topk:1.5", "topk:x", "topk:0.1x", "ratio:-1", "ratio:nan", "powersgd:0",
                            "powersgd:2.5", "powersgd:4+int8", "int8+bf16", "topk:0.1+ratio:0.1", "int8+", "+int8", "none+int8"}) {
    CAPTURE(wrong);
    CHECK((error_of([&] { Compression::parse(wrong); }).kind() == ErrorKind::Usage));
  }
  for (const DistOptions& options :
       {DistOptions{.reduction = "native", .compression = "bf16"}, DistOptions{.reduce_dtype = "bf16", .compression = "int8"},
        DistOptions{.reduce = "micro_batch", .compression = "topk:0.1"}})
    CHECK((error_of([&] { options.compressed(); }).kind() == ErrorKind::Usage));
  CHECK(DistOptions{.compression = "int8"}.resolved("NCCL").adds_in_order());
  CHECK(DistOptions{.compression = "int8"}.resolved("Gloo", Sharding::Gradients).reduce == "window");
  CHECK(DistOptions{.compression = "bf16"}.resolved("Gloo", Sharding::Gradients).reduce == "micro_batch");
}

TEST_CASE("int8: the bits of a plain computation over three windows, and a byte for each element and a scale for each 256") {
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const auto n = static_cast<size_t>(ranks), part = static_cast<size_t>(kElements) / n;
    const auto seen = windows_of_ranks({.ranks = ranks, .compression = "int8", .parameters = one_vector}, 3);
    std::vector<std::vector<float>> left(n, std::vector<float>(kElements)), left_of_sum(n, std::vector<float>(part));
    for (int64_t w = 0; w < 3; ++w) {
      std::vector<std::vector<float>> sums(n, std::vector<float>(part));
      for (size_t r = 0; r < n; ++r) {
        add_to(left[r], numbers(plain_gradient(one_vector()[0], static_cast<int>(r), w)));
        for (size_t owner = 0; owner < n; ++owner) {
          const auto begin = left[r].begin() + static_cast<std::ptrdiff_t>(owner * part);
          std::vector<float> own(begin, begin + static_cast<std::ptrdiff_t>(part));
          const auto read = coded(own);
          std::copy(own.begin(), own.end(), begin);
          if (r == 0)
            sums[owner] = read;
          else
            add_to(sums[owner], read);
        }
      }
      std::vector<at::Tensor> parts;
      for (size_t owner = 0; owner < n; ++owner) {
        add_to(sums[owner], left_of_sum[owner]);
        parts.push_back(tensor(coded(sums[owner])));
        left_of_sum[owner] = sums[owner];
      }
      const auto expected = at::cat(parts);
      const auto blocks = static_cast<int64_t>((part + 255) / 256);
      for (const auto& rank : seen) {
        CHECK(at::equal(rank[static_cast<size_t>(w)].sums[0], expected));
        CHECK(rank[static_cast<size_t>(w)].bytes == 2 * (ranks - 1) * (static_cast<int64_t>(part) + 4 * blocks));
        CHECK(rank[static_cast<size_t>(w)].bytes == rank[static_cast<size_t>(w)].counted);
      }
    }
  }
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
        const auto sent = static_cast<double>(bytes("ratio:0.1" + code));
        CHECK(sent <= 0.1 * all);
        CHECK(sent > 0.09 * all);
      }
}

TEST_CASE("powersgd: the sums of a computation in fp64 with QR, over three windows with errors and the factors of the window before") {
  constexpr int kRanks = 3;
  std::map<std::string, at::Tensor> factors;  // at the start
  const Setting setting{.ranks = kRanks, .compression = "powersgd:3"};
  const auto seen = of_ranks<std::vector<Seen>>(setting, [&](Rank& rank) {
    if (rank.number() == 0)
      for (const auto& [name, factor] : rank.reducer.carried().shared.tensors) factors[name] = factor.to(at::kDouble, false, true);
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
  // Three columns of (16 + 72), (61 + 33) and (30 + 40), seven biases, and what is fp64 as it is: 65 numbers, padded.
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
      CHECK(at::allclose(seen[1][w].sums[i], expected, 1e-4, 2e-5 * largest));
    }
}

TEST_CASE("what windows leave out is not lost: sums and errors together are the uncompressed gradients, with and without shards") {
  constexpr int64_t kWindows = 5;
  for (const auto& compression : kCarrying)
    for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Gradients}) {
      CAPTURE(compression);
      CAPTURE(static_cast<int>(sharding));
      constexpr int kRanks = 3;
      std::vector<std::vector<Seen>> seen(kRanks);
      const auto carried =
          of_ranks<CarriedState>({.ranks = kRanks, .compression = compression, .sharding = sharding, .bucket_mib = 0.004}, [&](Rank& rank) {
            for (int64_t w = 0; w < kWindows; ++w) seen[static_cast<size_t>(rank.number())].push_back(rank.window(w, plain_gradient));
            rank.reducer.settle(true);
            return rank.reducer.carried();
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
        if (compression == "int8" || compression.starts_with("ratio")) continue;  // coded once more without shards; another share
        std::vector<at::Tensor> parts;
        for (const auto& rank : shards) parts.push_back(rank[w].sums[i]);
        const auto& sum = all[0][w].sums[i];
        CHECK(at::equal(at::cat(parts), sum.as_strided({sum.numel()}, {1})));
      }
  }
}

TEST_CASE("a step that is not taken leaves no error, and errors follow the scale of the losses") {
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const auto plain = windows_of_ranks({.ranks = 2, .compression = compression}, 2);
    const auto skipped = of_ranks<std::vector<Seen>>({.ranks = 2, .compression = compression}, [&](Rank& rank) {
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
    const auto states = of_ranks<std::vector<CarriedState>>({.ranks = 2, .compression = compression}, [&](Rank& rank) {
      std::vector<CarriedState> out;
      for (int64_t w = 0; w < 2; ++w) {
        const auto seen = rank.window(w, gradient);
        CHECK(seen.sums[2].defined() == (w == 0));
        rank.reducer.settle(true);
        out.push_back(rank.reducer.carried());
      }
      return out;
    });
    for (const auto& rank : states)
      for (const char* of : {"rank/matrix", "sum/matrix"}) {
        const auto* before = rank[0].slices.find(of);
        if (before == nullptr) continue;
        CHECK(at::equal(before->value, rank[1].slices.find(of)->value));
        if (before->value.numel() > 0) CHECK(before->value.abs().max().item<double>() > 0);
      }
  }
}

TEST_CASE("a saved state continues to the bit, for other sizes of buckets too; fewer ranks take over the errors of all") {
  for (const auto& compression : kCarrying) {
    CAPTURE(compression);
    const bool by_bucket = compression != "powersgd:2";  // the others choose and code by bucket
    const auto expected = windows_of_ranks({.ranks = 3, .compression = compression}, 3);
    const auto saved = joined(of_ranks<CarriedState>({.ranks = 3, .compression = compression}, [&](Rank& rank) {
      for (int64_t w = 0; w < 2; ++w) rank.window(w, plain_gradient);
      rank.reducer.settle(true);
      return rank.reducer.carried();
    }));
    const auto resumed = of_ranks<Seen>({.ranks = 3, .compression = compression, .bucket_mib = by_bucket ? 25 : 0.004}, [&](Rank& rank) {
      rank.window(9, plain_gradient);  // of which nothing may be left
      rank.reducer.load_carried(saved);
      return rank.window(2, plain_gradient);
    });
    for (size_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < resumed[r].sums.size(); ++i) CHECK(at::equal(resumed[r].sums[i], expected[r][2].sums[i]));
    for (const auto& other : {compression, std::string("topk:0.1")}) {
      const auto fewer = joined(of_ranks<CarriedState>({.ranks = 2, .compression = other}, [&](Rank& rank) {
        rank.reducer.load_carried(saved);
        return rank.reducer.carried();
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
  auto wrong = of_ranks<int>({.ranks = 2, .compression = "int8"}, [](Rank& rank) {
    State of_another;
    of_another.values["scale"] = 1.0;
    of_another.tensors["error/rank/matrix"] = at::zeros({2, 5});
    CHECK((error_of([&] { rank.reducer.load_carried(of_another); }).kind() == ErrorKind::Checkpoint));
    return 0;
  });
  CHECK(wrong.size() == 2);
}

TEST_CASE("ranks that compress differently get an error, and a process alone compresses nothing") {
  const auto network = std::make_shared<Network>(2);
  const auto errors = errors_of_ranks(
      network->agreements, [&](int r) { Rank rank(network, r, several(), {.compression = r == 0 ? "none" : "int8"}, Sharding::None); });
  for (const auto& error : errors) {
    REQUIRE(error.has_value());
    CHECK(has(error->what(), "dist.compression int8"));
  }
  const auto alone = windows_of_ranks({.ranks = 1, .compression = "topk:0.01", .parameters = one_vector}, 1);
  CHECK(at::equal(alone[0][0].sums[0], plain_gradient(one_vector()[0], 0, 0)));
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
