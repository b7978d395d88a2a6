#include "npu_train/base/input_spec.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kExample = "example_batch";

int64_t size_in(const Extent& extent, const InputSpec& input, const ExampleOptions& options) {
  if (!extent.free()) return extent.size;
  if (extent.name == "batch") return options.samples;
  const auto given = options.sizes.find(extent.name);
  const auto size = given != options.sizes.end() ? given->second : extent.size;
  check(size > 0, ErrorKind::Usage, kExample, "the input '", input.name, "' is ", input.str(), ", and nothing says its ", extent.name,
        "; hint: give it in ExampleOptions::sizes");
  return size;
}

void check_names(const std::vector<InputSpec>& inputs, const ExampleOptions& options) {
  for (const auto& [name, size] : options.sizes) {
    const auto has = [&name = name](const InputSpec& input) {
      return std::any_of(input.shape.begin(), input.shape.end(), [&](const Extent& extent) { return extent.name == name; });
    };
    check(std::any_of(inputs.begin(), inputs.end(), has), ErrorKind::Usage, kExample, "no input has a free size '", name,
          "'; the first is ", inputs.front().str());
  }
}

// Returns zeros, or the allowed integer that is nearest to 0.
at::Tensor zero_values(const InputSpec& input, const std::vector<int64_t>& shape) {
  const auto like = at::TensorOptions(input.dtype);
  if (at::isFloatingType(input.dtype) || !input.range) return at::zeros(shape, like);
  const auto low = static_cast<int64_t>(input.range->first), high = static_cast<int64_t>(input.range->second);
  return at::full(shape, std::clamp<int64_t>(0, low, std::max(low, high - 1)), like);
}

at::Tensor random_values(const InputSpec& input, const std::vector<int64_t>& shape, const ExampleOptions& options) {
  const auto like = at::TensorOptions(input.dtype);
  if (!at::isFloatingType(input.dtype)) {
    check(input.range.has_value(), ErrorKind::Usage, kExample, "the input '", input.name, "' is ", input.str(), " without a range",
          "; hint: integers need InputSpec::range");
    return at::randint(static_cast<int64_t>(input.range->first), static_cast<int64_t>(input.range->second), shape, options.generator, like);
  }
  if (!input.range) return at::randn(shape, options.generator, like);
  const auto [low, high] = *input.range;
  return at::rand(shape, options.generator, like).mul_(high - low).add_(low);
}

}  // namespace

std::optional<int64_t> InputSpec::usual(const std::string& extent) const {
  for (const auto& e : shape)
    if (e.name == extent && e.size > 0) return e.size;
  return std::nullopt;
}

std::string InputSpec::str() const {
  std::string out = std::string(c10::toString(dtype)) + " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto& e = shape[i];
    out += (i > 0 ? ", " : "") + (e.free() ? e.name + (e.size > 0 ? " (" + std::to_string(e.size) + ")" : "") : std::to_string(e.size));
  }
  return out + "]";
}

InputSpec image_input(int64_t channels, int64_t side, bool fixed) {
  const Extent height = fixed ? Extent(side) : Extent("height", side), width = fixed ? Extent(side) : Extent("width", side);
  return {.name = "input", .shape = {"batch", channels, height, width}};
}

Batch example_batch(const std::vector<InputSpec>& inputs, const ExampleOptions& options) {
  check(!inputs.empty(), ErrorKind::Usage, kExample, "the model does not describe its inputs", "; hint: fill Model::inputs, as in ",
        "model.inputs = {npu_train::image_input(3, 224)}");
  check(options.samples >= 1, ErrorKind::Usage, kExample, "samples is ", options.samples, "; it must be at least 1");
  check_names(inputs, options);
  return translated(kExample, [&] {
    Batch out;
    for (const auto& input : inputs) {
      std::vector<int64_t> shape;
      for (const auto& extent : input.shape) shape.push_back(size_in(extent, input, options));
      out.set(input.name, options.zeros ? zero_values(input, shape) : random_values(input, shape, options));
    }
    out.size = options.samples;
    out.weight = static_cast<double>(options.samples);
    return out;
  });
}

}  // namespace npu_train
