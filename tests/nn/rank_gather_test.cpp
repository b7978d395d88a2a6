#include "testing.hpp"

#include "npu_train/nn/rank_gather.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

using namespace npu_train;

namespace {

using Numbers = std::vector<std::vector<double>>;

std::vector<double> numbers_of_rows(const at::Tensor& rows) {
  std::vector<double> out{static_cast<double>(rows.size(1))};
  const auto host = rows.detach().to(at::kDouble).contiguous();
  out.insert(out.end(), host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
  return out;
}

ForwardContext among(std::function<Numbers(const std::vector<double>&)> gather, size_t rank) {
  return {Batch(), 0, std::make_shared<const ForwardContext::Ranks>(ForwardContext::Ranks{std::move(gather), rank})};
}

// A loss that compares each row with all rows.
at::Tensor compared(const at::Tensor& rows) { return at::matmul(rows, rows.t()).exp().mean(); }

}  // namespace

TEST_CASE("without other ranks the rows are one's own") {
  const at::Tensor rows = at::randn({3, 2}).requires_grad_(true);
  const auto all = gathered({}, rows);
  CHECK(all.rows.is_same(rows));
  CHECK(all.first == 0);
}

TEST_CASE("weighted by their rows, the gradients of ranks are that of one loss over all rows") {
  const std::vector<at::Tensor> parts = {at::randn({3, 4}), at::Tensor(), at::randn({1, 4}), at::randn({2, 4})};  // one rank has no batch
  std::vector<at::Tensor> real;
  Numbers numbers;
  for (const auto& part : parts) {
    numbers.push_back(part.defined() ? numbers_of_rows(part) : std::vector<double>{});
    if (part.defined()) real.push_back(part);
  }
  const at::Tensor together = at::cat(real).requires_grad_(true);
  const at::Tensor loss = compared(together);
  loss.backward();
  int64_t first = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].defined()) continue;
    const at::Tensor own = parts[r].clone().requires_grad_(true);
    std::vector<double> given;
    const auto all = gathered(among([&](const std::vector<double>& mine) { return given = mine, numbers; }, r), own);
    CHECK(given == numbers[r]);
    CHECK(all.first == first);
    CHECK(at::equal(all.rows, together));
    const at::Tensor same = compared(all.rows);
    CHECK(same.item<float>() == loss.item<float>());
    const double share = static_cast<double>(own.size(0)) / 6;
    (same * share).backward();
    const at::Tensor expected = together.grad().narrow(0, first, own.size(0));
    CHECK((own.grad() - expected).abs().max().item<double>() < 1e-6 * expected.abs().max().item<double>() + 1e-7);
    first += own.size(0);
  }
  CHECK(first == 6);
}

TEST_CASE("invalid input is one error each") {
  const auto says = [](const at::Tensor& own, const Numbers& ranks, ErrorKind kind, const std::string& words) {
    const auto context = among([&](const std::vector<double>&) { return ranks; }, 0);
    const auto error = testing::error_of([&] { gathered(context, own); });
    CHECK(((error.kind() == kind)));
    CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
  };
  says(at::zeros({2}), {}, ErrorKind::Usage, "[n, features]");
  says(at::zeros({0, 3}), {}, ErrorKind::Usage, "at least one row");
  says(at::zeros({1, 2}), {{2, 0, 0}, {3, 0, 0, 0}}, ErrorKind::Peer, "rank 1 gave rows of 3 features where this one gave 2");
  says(at::zeros({1, 2}), {{2, 0, 0}, {2, 0}}, ErrorKind::Peer, "rank 1");
}
