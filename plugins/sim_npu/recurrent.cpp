// LSTM and GRU cells. On all devices except the host, libtorch calls them as one operator; the host has no kernels for it, so they are
// defined here.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <tuple>

namespace npu_train::sim {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat); }
at::Tensor slope_of_sigmoid(const at::Tensor& y) { return y * (1 - y); }
at::Tensor slope_of_tanh(const at::Tensor& y) { return 1 - y * y; }
at::Tensor with_bias(const at::Tensor& gates, const MaybeTensor& bias) {
  return bias && bias->defined() ? wide(gates) + wide(*bias) : wide(gates);
}

// Gates: input, forget, cell, output. The workspace keeps the activated gates.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const MaybeTensor& input_bias,
                                                         const MaybeTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  const auto cy = f * wide(cx) + i * g;
  return {(o * cy.tanh()).to(cx.scalar_type()), cy.to(cx.scalar_type()), at::cat({i, f, g, o}, 1).to(input_gates.scalar_type())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const MaybeTensor& grad_hy, const MaybeTensor& grad_cy,
                                                                  const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& workspace,
                                                                  bool has_bias) {
  const bool has_hy = grad_hy && grad_hy->defined(), has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) return {};
  const auto gates = wide(workspace).chunk(4, 1);
  const auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const auto squashed = wide(cy).tanh();
  const auto dh = has_hy ? wide(*grad_hy) : at::zeros_like(squashed);
  auto dc = dh * o * slope_of_tanh(squashed);
  if (has_cy) dc = dc + wide(*grad_cy);
  const auto d = at::cat({dc * g * slope_of_sigmoid(i), dc * wide(cx) * slope_of_sigmoid(f), dc * i * slope_of_tanh(g),
                          dh * squashed * slope_of_sigmoid(o)},
                         1)
                     .to(workspace.scalar_type());
  return {d, (dc * f).to(cx.scalar_type()), has_bias ? d.sum(0) : at::Tensor()};
}

// Gates: reset, update, new. The workspace has the activated gates, the old state, and the hidden part of the new gate.
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const MaybeTensor& input_bias, const MaybeTensor& hidden_bias) {
  const auto in = with_bias(input_gates, input_bias).chunk(3, 1), hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (in[0] + hidden[0]).sigmoid(), update = (in[1] + hidden[1]).sigmoid(), fresh = (in[2] + reset * hidden[2]).tanh();
  const auto h = wide(hx);
  return {(fresh + update * (h - fresh)).to(hx.scalar_type()),
          at::cat({reset, update, fresh, h, hidden[2]}, 1).to(input_gates.scalar_type())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace, bool has_bias) {
  const auto kept = wide(workspace).chunk(5, 1);
  const auto &reset = kept[0], &update = kept[1], &fresh = kept[2], &h = kept[3], &hidden = kept[4];
  const auto dh = wide(grad_hy);
  const auto d_fresh = dh * (1 - update) * slope_of_tanh(fresh);
  const auto d_reset = d_fresh * hidden * slope_of_sigmoid(reset), d_update = dh * (h - fresh) * slope_of_sigmoid(update);
  const auto type = workspace.scalar_type();
  const auto d_in = at::cat({d_reset, d_update, d_fresh}, 1).to(type), d_hidden = at::cat({d_reset, d_update, d_fresh * reset}, 1).to(type);
  return {d_in, d_hidden, (dh * update).to(grad_hy.scalar_type()), has_bias ? d_in.sum(0) : at::Tensor(),
          has_bias ? d_hidden.sum(0) : at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace npu_train::sim
