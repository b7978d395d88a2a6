#include "npu_train/nn/generate.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train {
namespace {

constexpr const char* kGenerate = "generate";
constexpr int64_t kFirstSorted = 256;  // number of tokens that drawn_token() sorts first

void check_sampling(const SamplingOptions& o) {
  check(o.temperature >= 0 && std::isfinite(o.temperature), ErrorKind::Usage, kGenerate, "temperature is ", o.temperature,
        "; allowed: 0 (the largest logit) or a positive number");
  check(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), ErrorKind::Usage, kGenerate, "repetition_penalty is ",
        o.repetition_penalty, "; allowed: a positive number");
  check(o.top_k >= 0, ErrorKind::Usage, kGenerate, "top_k is ", o.top_k, "; allowed: at least 1, or 0 for all tokens");
  check(o.top_p > 0 && o.top_p <= 1, ErrorKind::Usage, kGenerate, "top_p is ", o.top_p, "; allowed: above 0, at most 1");
}

// Returns unnormalised probabilities of the tokens `order`, the first of which has the largest logit.
std::vector<double> weights_of(at::ArrayRef<float> logits, const std::vector<int64_t>& order, double temperature) {
  std::vector<double> out;
  out.reserve(order.size());
  const double largest = logits[static_cast<size_t>(order.front())];
  for (const auto token : order) out.push_back(std::exp((double{logits[static_cast<size_t>(token)]} - largest) / temperature));
  return out;
}

double sum_of(const std::vector<double>& weights) { return std::accumulate(weights.begin(), weights.end(), 0.0); }

at::Tensor penalised(const at::Tensor& logits, const std::vector<int64_t>& text, double penalty) {
  if (penalty == 1) return logits;
  const at::Tensor seen = at::tensor(text, at::kLong).to(logits.device());
  const at::Tensor values = logits.to(at::kFloat).index_select(0, seen);
  return logits.to(at::kFloat).index_copy(0, seen, at::where(values < 0, values * penalty, values / penalty));
}

// Returns the first `most` ids in the order of their logits; of equal ones, the lower id comes first.
std::vector<int64_t> most_probable(at::ArrayRef<float> values, int64_t most) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int64_t a, int64_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (most < static_cast<int64_t>(order.size())) {
    std::partial_sort(order.begin(), order.begin() + most, order.end(), before);
    order.resize(static_cast<size_t>(most));
  } else {
    std::sort(order.begin(), order.end(), before);
  }
  return order;
}

// Returns the number of leading weights whose sum reaches `wanted`.
size_t nucleus(const std::vector<double>& weights, double wanted) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    if ((sum += weights[i]) >= wanted) return i + 1;
  return weights.size();
}

// Returns the first token at which the sum of the probabilities, in descending order, exceeds the share `uniform` of the sum over the
// tokens that top_k and top_p keep. Sorts only as many tokens as are needed, because almost all tokens of a large vocabulary have a
// negligible probability.
int64_t drawn_token(at::ArrayRef<float> values, int64_t largest, const SamplingOptions& o, double uniform) {
  const auto all = static_cast<int64_t>(values.size()), allowed = o.top_k > 0 ? std::min(o.top_k, all) : all;
  double total = 0;  // sum of the weights of all tokens
  if (allowed == all && allowed > kFirstSorted)
    for (const float value : values) total += std::exp((double{value} - values[static_cast<size_t>(largest)]) / o.temperature);
  for (int64_t sorted = allowed == all ? std::min(allowed, kFirstSorted) : allowed;; sorted = std::min(allowed, 8 * sorted)) {
    const bool complete = sorted == allowed;
    const auto order = most_probable(values, sorted);
    auto weights = weights_of(values, order, o.temperature);
    if (complete) total = sum_of(weights);
    const bool cut = complete || o.top_p < 1;
    if (cut) weights.resize(nucleus(weights, o.top_p * total));
    if (!complete && cut && weights.size() == order.size()) continue;  // the nucleus may have more tokens
    double at = uniform * (cut ? sum_of(weights) : total);
    for (size_t i = 0; i < weights.size(); ++i)
      if ((at -= weights[i]) < 0) return order[i];
    if (cut) return order[weights.size() - 1];
  }
}

using Texts = std::vector<std::vector<int64_t>>;

// Computes the logits after the texts of a batch; caches the keys and values of earlier tokens if the model supports it.
class NextLogits {
 public:
  NextLogits(const Model& model, const Texts& prompts, bool cache) : model_(model) {
    check(model.module != nullptr && model.forward && model.inputs.size() == 1 && model.inputs.front().dtype == at::kLong &&
              model.inputs.front().shape.size() == 2 && model.inputs.front().range,
          ErrorKind::Usage, kGenerate, "the model '", model.name, "' does not have token ids [batch, tokens] as its only input; ",
          "hint: use a language model");
    check(!cache || prompts.size() == 1 || model.start_batch, ErrorKind::Usage, kGenerate, "the model '", model.name,
          "' continues one text at a time, and there are ", prompts.size(), " prompts; hint: call generate() for each");
    vocabulary_ = static_cast<int64_t>(model.inputs.front().range->second);
    longest_ = model.inputs.front().usual("tokens").value_or(0);
    const auto parameters = model.module->parameters();
    if (!parameters.empty()) device_ = parameters.front().device();
    for (const auto& prompt : prompts) width_ = std::max(width_, static_cast<int64_t>(prompt.size()));
    for (const auto& prompt : prompts) padding_.push_back(width_ - static_cast<int64_t>(prompt.size()));
    if (cache && prompts.size() > 1) more_ = model.start_batch(at::tensor(padding_, at::kLong).to(device_));
    if (cache && prompts.size() == 1 && model.start_sequence) more_ = model.start_sequence();
  }

  int64_t vocabulary() const { return vocabulary_; }

  // Returns the logits [vocabulary] after each text that has not ended. Each text has one token more than in the last call.
  std::vector<at::Tensor> operator()(const Texts& texts, const std::vector<bool>& ended) {
    std::vector<at::Tensor> out(texts.size());
    if (more_ && (longest_ == 0 || width_ <= longest_)) {
      const at::Tensor logits = more_(unseen(texts).to(device_)).select(1, -1).to(at::kCPU);
      for (size_t i = 0; i < texts.size(); ++i) out[i] = logits.select(0, static_cast<int64_t>(i));
    } else {
      for (size_t i = 0; i < texts.size(); ++i)
        if (!ended[i]) out[i] = alone(texts[i]);
    }
    seen_ = width_++;
    return out;
  }

 private:
  // Returns the columns of the batch that the sequences have not seen. Padding is token 0, which nothing attends to.
  at::Tensor unseen(const Texts& texts) const {
    const auto rows = static_cast<int64_t>(texts.size());
    at::Tensor out = at::zeros({rows, width_ - seen_}, at::kLong);
    for (int64_t i = 0; i < rows; ++i) {
      const auto& text = texts[static_cast<size_t>(i)];
      const auto begin = std::max(seen_, padding_[static_cast<size_t>(i)]);  // column of the first unseen token
      std::copy(text.end() - (width_ - begin), text.end(), out.mutable_data_ptr<int64_t>() + (i + 1) * (width_ - seen_) - (width_ - begin));
    }
    return out;
  }

  at::Tensor alone(const std::vector<int64_t>& text) const {
    const auto first = longest_ == 0 ? 0 : std::max<int64_t>(0, static_cast<int64_t>(text.size()) - longest_);
    const auto part = at::ArrayRef<int64_t>(text).slice(static_cast<size_t>(first));
    return model_.forward(at::tensor(part, at::kLong).unsqueeze(0).to(device_)).select(0, 0).select(0, -1);
  }

  const Model& model_;
  at::Device device_ = at::kCPU;
  Continuation more_;
  std::vector<int64_t> padding_;  // number of padding tokens at the beginning of each row
  int64_t vocabulary_ = 0, longest_ = 0;
  int64_t width_ = 0, seen_ = 0;  // number of columns of the padded texts, and how many of them the sequences have seen
};

void check_prompts(const Texts& prompts, int64_t vocabulary) {
  for (size_t row = 0; row < prompts.size(); ++row) {
    const auto& prompt = prompts[row];
    const auto name = prompts.size() > 1 ? str_cat("prompt ", row) : std::string("the prompt");
    check(!prompt.empty(), ErrorKind::Usage, kGenerate, name, " is empty; it must have at least one token");
    for (size_t i = 0; i < prompt.size(); ++i)
      check(prompt[i] >= 0 && prompt[i] < vocabulary, ErrorKind::Usage, kGenerate, "token ", i, " of ", name, " is ", prompt[i],
            "; allowed: 0 to ", vocabulary - 1, "; hint: use the tokenizer of the training data");
  }
}

}  // namespace

int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, Philox& random) {
  check_sampling(options);
  check(logits.dim() == 1 && logits.numel() > 0, ErrorKind::Usage, kGenerate, "logits ", logits.sizes(), "; allowed: [vocabulary]");
  const at::Tensor host = logits.detach().to(at::kCPU, at::kFloat).contiguous();
  const at::ArrayRef<float> values(host.const_data_ptr<float>(), static_cast<size_t>(host.numel()));
  const bool are_numbers = std::none_of(values.begin(), values.end(), [](float v) { return std::isnan(v) || v == INFINITY; });
  const auto largest = std::max_element(values.begin(), values.end()) - values.begin();
  check(are_numbers && values[static_cast<size_t>(largest)] > -INFINITY, ErrorKind::Data, kGenerate,
        "the logits are not finite numbers; hint: check the weights and the precision of the model");
  return options.temperature == 0 ? largest : drawn_token(values, largest, options, random.uniform());
}

std::vector<int64_t> generate(const Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  std::function<bool(size_t, int64_t)> on_token;
  if (options.on_token) on_token = [&](size_t, int64_t token) { return options.on_token(token); };
  return generate_batch(model, {prompt}, options, on_token).front();
}

Texts generate_batch(const Model& model, const Texts& prompts, const GenerateOptions& options,
                     const std::function<bool(size_t row, int64_t token)>& on_token) {
  check_sampling(options.sampling);
  check(options.max_new_tokens >= 0, ErrorKind::Usage, kGenerate, "max_new_tokens is ", options.max_new_tokens, "; allowed: at least 0");
  check(!prompts.empty(), ErrorKind::Usage, kGenerate, "there are no prompts");
  const c10::AutoGradMode no_grad(false);
  NextLogits next(model, prompts, options.key_value_cache);
  check_prompts(prompts, next.vocabulary());
  const EvaluationMode evaluation(*model.module);
  std::vector<Philox> random(prompts.size(), Philox(derive_seed(options.seed, "generate")));
  std::vector<bool> ended(prompts.size(), false);
  Texts texts = prompts, out(prompts.size());
  for (int64_t count = 0; count < options.max_new_tokens && std::find(ended.begin(), ended.end(), false) != ended.end(); ++count) {
    const auto logits = next(texts, ended);
    for (size_t i = 0; i < texts.size(); ++i) {
      int64_t token = 0;  // token of an ended row
      if (!ended[i]) {
        token = sample_token(penalised(logits[i], texts[i], options.sampling.repetition_penalty), options.sampling, random[i]);
        out[i].push_back(token);
        ended[i] = on_token && !on_token(i, token);
      }
      texts[i].push_back(token);
    }
  }
  return out;
}

}  // namespace npu_train
