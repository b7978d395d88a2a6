// Complete operators on the simulated NPU, forward and backward, compared with the CPU. Covers operators that libtorch treats differently
// on a device other than the host.
#include "testing.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>
#include <vector>

#include "npu_train/core/log.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/sim_npu.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

at::Device started_npu() {
  start_sim_npu({});
  return Device{"sim_npu", 0}.c10();
}

// Runs `fn` of leaves on a device. Returns its result and the gradients of the leaves, on the host.
std::vector<at::Tensor> run(const std::vector<at::Tensor>& leaves, at::Device device,
                            const std::function<at::Tensor(const std::vector<at::Tensor>&)>& fn) {
  std::vector<at::Tensor> there;
  for (const auto& t : leaves) there.push_back(t.detach().clone().to(device).requires_grad_());
  const at::Tensor y = fn(there);
  CHECK(y.device() == device);
  (y * y.detach().clone()).sum().backward();
  std::vector<at::Tensor> out = {y.detach().cpu()};
  for (const auto& t : there) out.push_back(t.grad().defined() ? t.grad().to_dense().cpu() : at::Tensor());
  return out;
}

void check_same(const std::vector<at::Tensor>& leaves, const std::function<at::Tensor(const std::vector<at::Tensor>&)>& fn,
                double tolerance = 0) {
  const auto there = run(leaves, started_npu(), fn), here = run(leaves, at::kCPU, fn);
  for (size_t i = 0; i < here.size(); ++i) {
    CAPTURE(i);
    REQUIRE(there[i].defined() == here[i].defined());
    if (here[i].defined()) CHECK(at::allclose(there[i], here[i], tolerance, tolerance));
  }
}

// Runs training steps of a module. Returns the parameters after them, on the host.
template <class Module>
std::vector<at::Tensor> trained(Module module, at::Device device, const std::function<at::Tensor(Module&, at::Device)>& loss) {
  module->to(device);
  torch::optim::SGD sgd(module->parameters(), torch::optim::SGDOptions(0.1));
  for (int i = 0; i < 3; ++i) {
    sgd.zero_grad();
    loss(module, device).backward();
    sgd.step();
  }
  std::vector<at::Tensor> out;
  for (const auto& p : module->parameters()) out.push_back(p.detach().cpu());
  return out;
}

template <class Module, class Make, class Loss>
void check_trains_the_same(const Make& make, const Loss& loss) {
  const auto of = [&](at::Device device) {
    torch::manual_seed(3);
    return trained<Module>(make(), device, loss);
  };
  const auto there = of(started_npu()), here = of(at::kCPU);
  torch::manual_seed(3);
  const auto start = make()->parameters();
  for (size_t i = 0; i < here.size(); ++i) {
    CAPTURE(i);
    CHECK(at::allclose(there[i], here[i], 1e-5, 1e-6));
    CHECK_FALSE(at::equal(there[i], start[i]));
  }
}

}  // namespace

TEST_CASE("conjugated and negated complex tensors: clones, copies, products and parts") {
  torch::manual_seed(1);
  const at::Tensor z = torch::randn({3, 4}, at::kComplexFloat), w = torch::randn({4, 3}, at::kComplexFloat);
  const at::Tensor there = z.to(started_npu()), other = w.to(started_npu());
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { CHECK(at::allclose(a.cpu(), b, 1e-6, 1e-6)); };
  same(there.conj().clone(), z.conj().clone());
  same(there.conj(), z.conj().resolve_conj());
  same(at::imag(there.conj()), at::imag(z.conj()).resolve_neg());
  same(at::imag(there.conj()).clone(), at::imag(z.conj()).clone());
  same(at::imag(there.conj()) + 1, at::imag(z.conj()) + 1);
  same(there.conj() * 2, z.conj() * 2);
  same(at::mm(there.conj(), other), at::mm(z.conj(), w));
  same(at::mm(there, there.conj().t()), at::mm(z, z.conj().t()));
  same(there.conj().sum(), z.conj().sum());
  CHECK(there.conj().select(0, 1).select(0, 2).item().toComplexDouble() == z.conj().select(0, 1).select(0, 2).item().toComplexDouble());
  at::Tensor target = at::zeros({3, 4}, there.options());
  target.conj().copy_(there);
  same(target, z.conj().resolve_conj());
  target.copy_(there.conj());
  same(target, z.conj().resolve_conj());
  same(z.conj().to(started_npu()), z.conj().resolve_conj());
  same(at::view_as_real(there.conj().resolve_conj()), at::view_as_real(z.conj().resolve_conj()));
}

TEST_CASE("rotary embeddings by complex products train") {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({2, 5, 4, 8}), angles = torch::outer(torch::arange(5).to(at::kFloat), torch::rand({4}));
  check_same({x}, [&](const std::vector<at::Tensor>& in) {
    const at::Tensor turns = at::polar(torch::ones_like(angles), angles).to(in[0].device()).view({1, 5, 1, 4});
    return at::view_as_real(at::view_as_complex(in[0].reshape({2, 5, 4, 4, 2})) * turns).flatten(3);
  });
}

TEST_CASE("indices of the host into a tensor of the device, forward and backward") {
  const at::Tensor x = torch::arange(12).to(at::kFloat).view({4, 3});
  const at::Tensor rows = torch::tensor({3, 0, 3}), mask = torch::tensor({true, false, true, true});
  check_same({x}, [&](const std::vector<at::Tensor>& in) { return in[0].index({rows}); });
  check_same({x}, [&](const std::vector<at::Tensor>& in) { return in[0].index({mask}); });
  check_same({x}, [&](const std::vector<at::Tensor>& in) { return (in[0] * 1).index_put({rows}, in[0].slice(0, 0, 3) * 2); });
  const at::Tensor there = x.to(started_npu());
  CHECK_THROWS_WITH(there.index_put({rows}, torch::ones({3, 3})), doctest::Contains("move it first"));
  CHECK_THROWS_WITH(at::index_select(there, 0, rows), doctest::Contains("move it first"));
}

TEST_CASE("a convolution as TorchScript calls it, and the second derivative of one") {
  const std::vector<at::Tensor> leaves = {torch::randn({2, 4, 6, 6}), torch::randn({4, 2, 3, 3}), torch::randn({4})};
  check_same(leaves, [](const std::vector<at::Tensor>& t) {
    return at::_convolution(t[0], t[1], t[2], {2, 2}, {1, 1}, {1, 1}, false, {0, 0}, 2, false, false, true, true);
  });
  check_same(leaves, [](const std::vector<at::Tensor>& t) {
    return torch::autograd::grad({at::conv2d(t[0], t[1], t[2], 1, 1, 1, 2).pow(2).sum()}, {t[1]}, {}, true, true)[0];
  });
}

TEST_CASE("LSTM, GRU, RNN and their cells train as on the host, and nothing of them is said to run there") {
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += std::string(text) + "\n"; });
  const auto batch = [](at::Device device) {
    torch::manual_seed(5);
    return torch::randn({6, 3, 5}).to(device);
  };
  for (const bool two : {false, true}) {
    CAPTURE(two);
    check_trains_the_same<torch::nn::LSTM>(
        [&] { return torch::nn::LSTM(torch::nn::LSTMOptions(5, 7).num_layers(two ? 2 : 1).bidirectional(two).bias(!two)); },
        [&](torch::nn::LSTM& m, at::Device d) {
          const auto [y, state] = m->forward(batch(d));
          return y.square().sum() + std::get<0>(state).sum() + std::get<1>(state).square().sum();
        });
    check_trains_the_same<torch::nn::GRU>(
        [&] { return torch::nn::GRU(torch::nn::GRUOptions(5, 7).num_layers(two ? 2 : 1).bidirectional(two).bias(!two)); },
        [&](torch::nn::GRU& m, at::Device d) {
          const auto [y, state] = m->forward(batch(d));
          return y.square().sum() + state.sum();
        });
  }
  check_trains_the_same<torch::nn::RNN>([] { return torch::nn::RNN(torch::nn::RNNOptions(5, 7)); },
                                        [&](torch::nn::RNN& m, at::Device d) { return std::get<0>(m->forward(batch(d))).square().sum(); });
  check_trains_the_same<torch::nn::LSTMCell>([] { return torch::nn::LSTMCell(5, 7); },
                                             [&](torch::nn::LSTMCell& m, at::Device d) {
                                               const auto first = m->forward(batch(d)[0]);
                                               const auto [h, c] =
                                                   m->forward(batch(d)[1], std::make_tuple(std::get<0>(first), std::get<1>(first)));
                                               return h.square().sum() + c.sum();
                                             });
  check_trains_the_same<torch::nn::GRUCell>(
      [] { return torch::nn::GRUCell(5, 7); },
      [&](torch::nn::GRUCell& m, at::Device d) { return m->forward(batch(d)[1], m->forward(batch(d)[0])).square().sum(); });
  CHECK_MESSAGE(!has(said, "_thnn_fused"), said);
}

TEST_CASE("sparse embeddings train as on the host") {
  check_trains_the_same<torch::nn::Embedding>(
      [] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(true)); },
      [](torch::nn::Embedding& m, at::Device d) {
        const at::Tensor rows = torch::tensor({4, 1, 1, 0, 2, 3}).to(d);
        const at::Tensor loss = m->forward(rows).square().sum();
        (m->forward(rows.slice(0, 2)).pow(3).sum()).backward();  // adds a second gradient to the first
        return loss;
      });
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 3).sparse(true));
  table->to(started_npu());
  table->forward(torch::tensor({4, 1, 1}).to(started_npu())).sum().backward();
  const at::Tensor g = table->weight.grad();
  CHECK(g.is_sparse());
  CHECK(g.device() == started_npu());
  CHECK(g._nnz() == 3);
  CHECK(g.coalesce()._nnz() == 2);
  CHECK(at::equal(g.to_dense().cpu().sum(1), torch::tensor({0.F, 6.F, 0.F, 0.F, 3.F})));
  CHECK(at::equal(g.cpu().to_dense(), g.to_dense().cpu()));
  CHECK(at::equal(g.cpu().to(started_npu()).to_dense().cpu(), g.to_dense().cpu()));
  g._values().mul_(2);
  CHECK(at::equal((g * 2).to_dense().cpu().sum(1), torch::tensor({0.F, 24.F, 0.F, 0.F, 12.F})));
  g.zero_();
  CHECK(g._nnz() == 0);
}
