// Comparison with torch's BatchNorm on the samples of all ranks in one batch.
#include "npu_train/nn/sync_batch_norm.hpp"

#include "testing.hpp"

#include <torch/nn.h>

#include "exchange.hpp"
#include "npu_train/base/host_numbers.hpp"
#include "npu_train/nn/batch_norm_act.hpp"
#include "npu_train/nn/checkpointing.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

SyncBatchNorm::Gather gather_of(const std::shared_ptr<Exchange>& exchange, int rank) {
  return [exchange, rank](const at::Tensor& own) {
    std::vector<at::Tensor> rows;
    for (auto& m : exchange->all(rank, {.call = "batch_norm", .numbers = own.defined() ? host_numbers(own) : std::vector<double>()}))
      if (!m.numbers.empty()) rows.push_back(at::tensor(m.numbers, at::kDouble));
    return at::stack(rows);
  };
}

using NormCall = std::function<at::Tensor(torch::nn::BatchNorm2dImpl&, const at::Tensor&)>;

// Outputs and gradients of the loss sum(w * y^2), and the running statistics afterwards.
struct Seen {
  at::Tensor y, dx, dweight, dbias, mean, variance;
};

Seen seen(torch::nn::BatchNorm2dImpl& norm, const at::Tensor& input, const at::Tensor& w, const NormCall& forward) {
  const auto x = input.detach().clone(at::MemoryFormat::Preserve).requires_grad_(true);
  const auto y = forward(norm, x);
  (w * y.to(at::kDouble).square()).sum().backward();
  const auto grad = [](const at::Tensor& t) { return t.defined() ? t.grad() : at::Tensor(); };
  return {y.detach(), x.grad(), grad(norm.weight), grad(norm.bias), norm.running_mean.clone(), norm.running_var.clone()};
}

std::shared_ptr<torch::nn::BatchNorm2dImpl> layer(at::ScalarType dtype, bool affine, std::optional<double> momentum) {
  auto norm = std::make_shared<torch::nn::BatchNorm2dImpl>(torch::nn::BatchNorm2dOptions(3).affine(affine).momentum(momentum));
  if (affine) {
    const at::NoGradGuard no_grad;
    norm->weight.copy_(torch::tensor({0.5, -1.5, 2.0}));
    norm->bias.copy_(torch::tensor({0.1, 0.0, -3.0}));
  }
  norm->to(dtype);
  return norm;
}

void check_against_torch(const std::vector<int64_t>& rows, at::ScalarType dtype, bool affine, std::optional<double> momentum,
                         at::MemoryFormat format, double tolerance, const NormCall& forward) {
  CAPTURE(c10::toString(dtype));
  CAPTURE(rows);
  torch::manual_seed(5);
  const auto norm_dtype = dtype == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> inputs, factors;
  for (size_t r = 0; r < rows.size(); ++r) {
    inputs.push_back((torch::randn({rows[r], 3, 2, 4}, at::kDouble) * (1.0 + r) + 10.0 * r).to(dtype).contiguous(format));
    factors.push_back(torch::rand({rows[r], 3, 2, 4}, at::kDouble));
  }
  const auto whole = layer(norm_dtype, affine, momentum);
  const auto expected = seen(*whole, at::cat(inputs), at::cat(factors), [](auto& norm, const at::Tensor& x) { return norm.forward(x); });

  const auto exchange = std::make_shared<Exchange>(static_cast<int>(rows.size()));
  std::vector<Seen> all(rows.size());
  on_ranks(*exchange, [&](int r) {
    const auto i = static_cast<size_t>(r);
    const auto norm = layer(norm_dtype, affine, momentum);
    const auto gather = gather_of(exchange, r);
    if (rows[i] == 0) {  // a rank without a batch only joins the forward and the backward of the others
      for (int call = 0; call < 2; ++call) gather({});
      return;
    }
    all[i] = seen(*norm, inputs[i], factors[i], [&](auto& n, const at::Tensor& x) {
      const SyncBatchNorm synced(gather);
      return forward(n, x);
    });
  });
  const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
    const double scale = std::max(1.0, b.abs().max().item<double>());
    return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() <= tolerance * scale;
  };
  int64_t row = 0;
  at::Tensor dweight, dbias;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] == 0) continue;
    CAPTURE(r);
    CHECK((all[r].y.scalar_type() == dtype));
    CHECK(close(all[r].y, expected.y.narrow(0, row, rows[r])));
    CHECK(close(all[r].dx, expected.dx.narrow(0, row, rows[r])));
    CHECK(close(all[r].mean, expected.mean));
    CHECK(close(all[r].variance, expected.variance));
    CHECK(at::equal(all[r].mean, all[0].mean));
    row += rows[r];
    if (!affine) continue;
    dweight = dweight.defined() ? dweight + all[r].dweight : all[r].dweight;
    dbias = dbias.defined() ? dbias + all[r].dbias : all[r].dbias;
  }
  if (affine) {
    CHECK(close(dweight, expected.dweight));
    CHECK(close(dbias, expected.dbias));
  }
}

const NormCall kPlain = [](torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x) { return norm.forward(x); };

}  // namespace

TEST_CASE("ranks with batches of any size have the outputs, gradients and statistics of one batch") {
  const auto plain = at::MemoryFormat::Contiguous, last = at::MemoryFormat::ChannelsLast;
  for (const auto& rows : std::vector<std::vector<int64_t>>{{4, 4}, {5, 3}, {1, 6, 2}, {3, 0, 2}}) {
    check_against_torch(rows, at::kDouble, true, 0.1, plain, 1e-12, kPlain);
    check_against_torch(rows, at::kFloat, true, 0.3, last, 2e-6, kPlain);
    check_against_torch(rows, at::kFloat, false, 0.1, plain, 2e-6, kPlain);
    check_against_torch(rows, at::kFloat, true, std::nullopt, plain, 2e-6, kPlain);
    check_against_torch(rows, at::kBFloat16, true, 0.1, plain, 1e-2, kPlain);
  }
}

TEST_CASE("batch_norm_act is synchronised too, and a checkpointed function when it is repeated") {
  const NormCall own = [](torch::nn::BatchNorm2dImpl& n, const at::Tensor& x) {
    return batch_norm_act(x, {n.weight, n.bias, n.running_mean, n.running_var, true, 0.1, 1e-5}, {}, /*relu=*/false);
  };
  check_against_torch({4, 2}, at::kFloat, true, 0.1, at::MemoryFormat::Contiguous, 2e-6, own);
  const NormCall repeated = [](torch::nn::BatchNorm2dImpl& n, const at::Tensor& x) {
    return checkpoint([&n](const at::Tensor& in) { return n.forward(in); }, x);
  };
  check_against_torch({4, 2}, at::kFloat, true, 0.1, at::MemoryFormat::Contiguous, 2e-6, repeated);
}

TEST_CASE("evaluation is not synchronised, nor layers after the scope") {
  int calls = 0;
  torch::nn::BatchNorm2d norm(3);
  {
    const SyncBatchNorm synced([&](const auto& own) {
      ++calls;
      return own.unsqueeze(0);
    });
    norm->eval();
    norm(torch::randn({2, 3, 2, 2}));
    CHECK(calls == 0);
    norm->train();
    norm(torch::randn({2, 3, 2, 2}));
    CHECK(calls == 1);
  }
  norm(torch::randn({2, 3, 2, 2}));
  CHECK(calls == 1);
}

TEST_CASE("ranks in other layers, and one value per channel over all ranks, are errors") {
  torch::nn::BatchNorm2d norm(3);
  const SyncBatchNorm synced([](const at::Tensor& own) { return own.new_zeros({2, 5}); });
  const auto error = error_of([&] { norm(torch::randn({2, 3, 2, 2})); });
  CHECK(error.kind() == ErrorKind::Peer);
  CHECK(has(error.what(), "the same layers in the same order"));
  const SyncBatchNorm alone([](const at::Tensor& own) { return own.unsqueeze(0); });
  const auto single = error_of([&] { at::batch_norm(torch::randn({1, 3, 1, 1}), {}, {}, {}, {}, true, 0.1, 1e-5, false); });
  CHECK(single.kind() == ErrorKind::Usage);
  CHECK(error_of([] { SyncBatchNorm nothing(nullptr); }).kind() == ErrorKind::Usage);
}
