// Operators that torch_npu runs by the old path on a 910A and a 310P3: convolutions, and operators on their results, which have private
// formats there (NC1HWC0). A tensor of a private format needs more memory; here, its values are at the start of that memory, in the usual
// order.
#include "old_path.hpp"
#include "operators.hpp"

namespace sim_cann::old_path {
namespace {

aclTensor as_handle(const OldTensor& t) {
  std::vector<int64_t> strides(t.sizes.size(), 1);
  for (size_t i = t.sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * t.sizes[i];
  return {{}, t.sizes, std::move(strides), 0, dtype_of(t.dtype), t.data};
}
Tensor open_in(const OldCall& call, size_t i) {
  return i < call.in.size() && call.in[i].data != nullptr ? open_tensor(as_handle(call.in[i])) : Tensor();
}

/// Attributes of a convolution. Strides and dilations are given for all four dimensions, paddings for both ends of height and width.
struct Convolution {
  explicit Convolution(const OldCall& call) {
    const auto height_and_width = [&](const char* name) {
      const auto& all = call.integers.at(name);
      return Ints{all.at(2), all.at(3)};
    };
    stride = height_and_width("strides");
    dilation = height_and_width("dilations");
    const auto& pads = call.integers.at("pads");
    TORCH_CHECK(pads.at(0) == pads.at(1) && pads.at(2) == pads.at(3), "paddings that differ between both ends: ", pads);
    padding = {pads[0], pads[2]};
    groups = call.integers.at("groups").at(0);
  }
  Ints stride, padding, dilation;
  int64_t groups = 1;
};

void write(const OldCall& call, const Tensor& value, size_t index = 0) {
  if (call.out.at(index).data == nullptr) return;
  const Out out(open_tensor(as_handle(call.out[index])));
  out = value;
  if (saturation_mode()) saturate(out);
}

Tensor backward(const OldCall& call, const Tensor& grad, const Tensor& input, const Tensor& weight, bool of_input) {
  const Convolution c(call);
  const auto all = at::convolution_backward(wide(grad), wide(input), wide(weight), std::nullopt, c.stride, c.padding, c.dilation, false,
                                            {0, 0}, c.groups, {of_input, !of_input, false});
  return of_input ? std::get<0>(all) : std::get<1>(all);
}

void conv2d(const OldCall& call) {
  const Convolution c(call);
  const Tensor bias = open_in(call, 2);
  write(call,
        at::convolution(wide(open_in(call, 0)), wide(open_in(call, 1)), bias.defined() ? std::optional<Tensor>(wide(bias)) : std::nullopt,
                        c.stride, c.padding, c.dilation, false, {0, 0}, c.groups));
}
// The first input of conv2d_input and the second one of conv2d_weight are sizes, which are read from the result instead.
void conv2d_input(const OldCall& call) {
  const Tensor weight = open_in(call, 1), grad = open_in(call, 2);
  write(call, backward(call, grad, at::empty(call.out.at(0).sizes, grad.options()), weight, true));
}
void conv2d_weight(const OldCall& call) {
  const Tensor input = open_in(call, 0), grad = open_in(call, 2);
  write(call, backward(call, grad, input, at::empty(call.out.at(0).sizes, input.options()), false));
}

template <class Function>
void reduce(const OldCall& call, const Function& function) {
  const Tensor axes = open_in(call, 1).to(at::kLong).contiguous();
  write(call, function(open_in(call, 0), at::IntArrayRef(axes.data_ptr<int64_t>(), static_cast<size_t>(axes.numel())),
                       call.integers.at("keep_dims").at(0) != 0));
}
void reduce_sum(const OldCall& call) {
  reduce(call, [](const Tensor& x, at::IntArrayRef axes, bool keep) { return x.sum(axes, keep); });
}
void reduce_mean(const OldCall& call) {
  reduce(call, [](const Tensor& x, at::IntArrayRef axes, bool keep) { return x.mean(axes, keep); });
}

// A normalisation consists of two operators. The first one computes sums, and the second one receives them. Here, the second one computes
// the sums again, so that its results are those of aclnnBatchNorm.
Tensor wide(const OldCall& call, size_t i) { return sim_cann::wide(open_in(call, i)); }

void batch_norm_sums(const OldCall& call) {
  const Tensor x = wide(call, 0);
  write(call, x.sum({0, 2, 3}), 0);
  write(call, (x * x).sum({0, 2, 3}), 1);
}
// Inputs: x, sums, sums of squares, weight, bias, running mean and variance. Outputs: y, running mean and variance, mean, variance.
void batch_norm_update(const OldCall& call) {
  Tensor mean = open_in(call, 5), variance = open_in(call, 6);
  const double eps = call.floats.at("epsilon");
  const auto [y, m, s] =
      at::native_batch_norm(wide(call, 0), wide(call, 3), wide(call, 4), mean, variance, true, call.floats.at("factor"), eps);
  write(call, y, 0);
  write(call, mean, 1);
  write(call, variance, 2);
  write(call, m, 3);
  write(call, 1 / (s * s) - eps, 4);
}
void batch_norm_of_inference(const OldCall& call) {
  write(call, std::get<0>(at::native_batch_norm(wide(call, 0), wide(call, 1), wide(call, 2), wide(call, 3), wide(call, 4), false, 0,
                                                call.floats.at("epsilon"))));
}
std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(const OldCall& call, const Tensor& weight, size_t mean) {
  const double eps = call.floats.at("epsilon");
  return at::native_batch_norm_backward(wide(call, 0), wide(call, 1), weight, std::nullopt, std::nullopt, wide(call, mean),
                                        (wide(call, mean + 1) + eps).rsqrt(), true, eps, {true, true, true});
}
// Inputs: grad, x, mean, variance. Outputs: gradients of weight and bias.
void batch_norm_weight(const OldCall& call) {
  const auto all = batch_norm_backward(call, at::ones(call.in.at(2).sizes), 2);
  write(call, std::get<1>(all), 0);
  write(call, std::get<2>(all), 1);
}
// Inputs: grad, x, gradients of weight and bias, weight, mean, variance. Output: gradient of x.
void batch_norm_input(const OldCall& call) { write(call, std::get<0>(batch_norm_backward(call, wide(call, 4), 5))); }

void relu(const OldCall& call) { write(call, at::relu(open_in(call, 0))); }
void relu_grad(const OldCall& call) { write(call, at::threshold_backward(open_in(call, 0), open_in(call, 1), 0)); }
void add(const OldCall& call) { write(call, at::add(open_in(call, 0), open_in(call, 1))); }
void mul(const OldCall& call) { write(call, at::mul(open_in(call, 0), open_in(call, 1))); }
void mat_mul(const OldCall& call) {
  const auto turned = [&](size_t i, const char* name) {
    return call.integers.at(name).at(0) != 0 ? open_in(call, i).t() : open_in(call, i);
  };
  const Tensor bias = open_in(call, 2), product = at::mm(turned(0, "transpose_x1"), turned(1, "transpose_x2"));
  write(call, bias.defined() ? product + bias : product);
}
void fill(const OldCall& call) { write(call, open_in(call, 1).reshape({}).expand(call.out.at(0).sizes)); }
void transpose(const OldCall& call) {
  const Tensor order = open_in(call, 1).to(at::kLong).contiguous();
  write(call, open_in(call, 0).permute(at::IntArrayRef(order.data_ptr<int64_t>(), static_cast<size_t>(order.numel()))));
}
void concat(const OldCall& call) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < call.in.size(); ++i) parts.push_back(open_in(call, i));
  write(call, at::cat(parts, call.integers.at("concat_dim").at(0)));
}
void identity(const OldCall& call) { write(call, open_in(call, 0)); }

struct Pool {
  explicit Pool(const OldCall& call) {
    const auto of = [&](const char* name) {
      const auto& all = call.integers.at(name);
      return Ints{all.at(1), all.at(2)};
    };
    kernel = of("ksize");
    stride = of("strides");
    padding = of("pads");
    dilation = of(call.integers.contains("dilation") ? "dilation" : "dilations");
    ceil = call.integers.at("ceil_mode").at(0) != 0;
  }
  Ints kernel, stride, padding, dilation;
  bool ceil;
};
void max_pool(const OldCall& call) {
  const Pool p(call);
  write(call, std::get<0>(at::max_pool2d_with_indices(open_in(call, 0), p.kernel, p.stride, p.padding, p.dilation, p.ceil)));
}
void max_pool_grad(const OldCall& call) {
  const Pool p(call);
  const Tensor x = open_in(call, 0),
               indices = std::get<1>(at::max_pool2d_with_indices(x, p.kernel, p.stride, p.padding, p.dilation, p.ceil));
  write(call, at::max_pool2d_with_indices_backward(open_in(call, 1), x, p.kernel, p.stride, p.padding, p.dilation, p.ceil, indices));
}

const std::pair<const char*, OldOperator> kOperators[] = {
    {"Add", add},
    {"BNInfer", batch_norm_of_inference},
    {"BNTrainingReduce", batch_norm_sums},
    {"BNTrainingReduceGrad", batch_norm_input},
    {"BNTrainingUpdate", batch_norm_update},
    {"BNTrainingUpdateGrad", batch_norm_weight},
    {"ConcatD", concat},
    {"Conv2D", conv2d},
    {"Conv2DBackpropFilter", conv2d_weight},
    {"Conv2DBackpropInput", conv2d_input},
    {"Fill", fill},
    {"Identity", identity},
    {"MatMul", mat_mul},
    {"MaxPoolGradWithArgmaxV1", max_pool_grad},
    {"MaxPoolWithArgmaxV1", max_pool},
    {"Mul", mul},
    {"ReduceMean", reduce_mean},
    {"ReduceSum", reduce_sum},
    {"Relu", relu},
    {"ReluGrad", relu_grad},
    {"Transpose", transpose},
};
const bool added = [] {
  bool out = true;
  for (const auto& [type, run] : kOperators) out = play_old_operator(type, run) && out;
  return out;
}();

}  // namespace
}  // namespace sim_cann::old_path
