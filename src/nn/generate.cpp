#include "npu_train/nn/generate.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/evaluation_mode.hpp"

namespace npu_train {
namespace {

constexpr const char* kGenerate = "generate";

void check_sampling(const SamplingOptions& o) {
  check(o.temperature >= 0 && std::isfinite(o.temperature), ErrorKind::Usage, kGenerate, "temperature is ", o.temperature,
        "; allowed: 0 (the largest logit) or a positive number");
  check(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), ErrorKind::Usage, kGenerate, "repetition_penalty is ",
        o.repetition_penalty, "; allowed: a positive number");
  check(o.top_k >= 0, ErrorKind::Usage, kGenerate, "top_k is ", o.top_k, "; allowed: at least 1, or 0 for all tokens");
  check(o.top_p > 0 && o.top_p <= 1, ErrorKind::Usage, kGenerate, "top_p is ", o.top_p, "; allowed: above 0, at most 1");
}

// Returns unnormalised probabilities of the tokens `order`, the first of which has the largest logit.
std::vector<double> weights_of(const std::vector<float>& logits, const std::vector<int64_t>& order, double temperature) {
  std::vector<double> out;
  out.reserve(order.size());
  const double largest = logits[static_cast<size_t>(order.front())];
  for (const auto token : order) out.push_back(std::exp((double{logits[static_cast<size_t>(token)]} - largest) / temperature));
  return out;
}

at::Tensor penalised(const at::Tensor& logits, const std::vector<int64_t>& text, double penalty) {
  if (penalty == 1) return logits;
  const at::Tensor seen = at::tensor(text, at::kLong).to(logits.device());
  const at::Tensor values = logits.to(at::kFloat).index_select(0, seen);
  return logits.to(at::kFloat).index_copy(0, seen, at::where(values < 0, values * penalty, values / penalty));
}

// Returns ids in the order of their logits; among equal ones, the lower id comes first. Returns only the first `most` ids; 0: all.
std::vector<int64_t> most_probable(const std::vector<float>& values, int64_t most) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int64_t a, int64_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (most > 0 && most < static_cast<int64_t>(order.size())) {
    std::partial_sort(order.begin(), order.begin() + most, order.end(), before);
    order.resize(static_cast<size_t>(most));
  } else {
    std::sort(order.begin(), order.end(), before);
  }
  return order;
}

// Returns the number of leading weights whose sum reaches `share` of the total.
size_t nucleus(const std::vector<double>& weights, double share) {
  const double wanted = share * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    if ((sum += weights[i]) >= wanted) return i + 1;
  return weights.size();
}

// Computes the logits after a text; caches the keys and values of earlier tokens if the model supports it.
class NextLogits {
 public:
  NextLogits(const Model& model, bool cache) : model_(model) {
    check(model.module != nullptr && model.forward && model.inputs.size() == 1 && model.inputs.front().dtype == at::kLong &&
              model.inputs.front().shape.size() == 2 && model.inputs.front().range,
          ErrorKind::Usage, kGenerate, "the model '", model.name, "' does not have token ids [batch, tokens] as its only input; ",
          "hint: use a language model");
    vocabulary_ = static_cast<int64_t>(model.inputs.front().range->second);
    longest_ = model.inputs.front().usual("tokens").value_or(0);
    const auto parameters = model.module->parameters();
    if (!parameters.empty()) device_ = parameters.front().device();
    if (cache && model.start_sequence) more_ = model.start_sequence();
  }

  int64_t vocabulary() const { return vocabulary_; }

  at::Tensor operator()(const std::vector<int64_t>& text) {
    const auto size = static_cast<int64_t>(text.size());
    const bool fits = longest_ == 0 || size <= longest_;
    const bool more = more_ && fits;
    const auto first = more ? seen_ : (fits ? 0 : size - longest_);
    const at::Tensor part = at::tensor(at::ArrayRef<int64_t>(text).slice(static_cast<size_t>(first)), at::kLong).unsqueeze(0).to(device_);
    const at::Tensor logits = more ? more_(part) : model_.forward(part);
    seen_ = size;
    return logits.select(0, 0).select(0, -1);
  }

 private:
  const Model& model_;
  at::Device device_ = at::kCPU;
  Continuation more_;
  int64_t vocabulary_ = 0, longest_ = 0, seen_ = 0;
};

}  // namespace

int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, Philox& random) {
  check_sampling(options);
  check(logits.dim() == 1 && logits.numel() > 0, ErrorKind::Usage, kGenerate, "logits ", logits.sizes(), "; allowed: [vocabulary]");
  const at::Tensor host = logits.detach().to(at::kCPU, at::kFloat).contiguous();
  const std::vector<float> values(host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel());
  const bool are_numbers = std::none_of(values.begin(), values.end(), [](float v) { return std::isnan(v) || v == INFINITY; });
  check(are_numbers && *std::max_element(values.begin(), values.end()) > -INFINITY, ErrorKind::Data, kGenerate,
        "the logits are not finite numbers; hint: check the weights and the precision of the model");
  if (options.temperature == 0) return std::max_element(values.begin(), values.end()) - values.begin();
  const auto order = most_probable(values, options.top_k);
  auto weights = weights_of(values, order, options.temperature);
  weights.resize(nucleus(weights, options.top_p));
  double at = random.uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i)
    if ((at -= weights[i]) < 0) return order[i];
  return order[weights.size() - 1];
}

std::vector<int64_t> generate(const Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  check_sampling(options.sampling);
  check(!prompt.empty(), ErrorKind::Usage, kGenerate, "the prompt is empty; it must have at least one token");
  check(options.max_new_tokens >= 0, ErrorKind::Usage, kGenerate, "max_new_tokens is ", options.max_new_tokens, "; allowed: at least 0");
  const c10::AutoGradMode no_grad(false);
  NextLogits next(model, options.key_value_cache);
  for (size_t i = 0; i < prompt.size(); ++i)
    check(prompt[i] >= 0 && prompt[i] < next.vocabulary(), ErrorKind::Usage, kGenerate, "token ", i, " of the prompt is ", prompt[i],
          "; allowed: 0 to ", next.vocabulary() - 1, "; hint: use the tokenizer of the training data");
  const EvaluationMode evaluation(*model.module);
  Philox random(derive_seed(options.seed, "generate"));
  std::vector<int64_t> text = prompt, out;
  while (static_cast<int64_t>(out.size()) < options.max_new_tokens) {
    out.push_back(sample_token(penalised(next(text), text, options.sampling.repetition_penalty), options.sampling, random));
    text.push_back(out.back());
    if (options.on_token && !options.on_token(out.back())) break;
  }
  return out;
}

}  // namespace npu_train
