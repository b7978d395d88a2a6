#include "npu_train/data/collate.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "data/pad_field.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kWhere = "Loader";

/// Returns the hint for samples that cannot be stacked.
const char* hint_for(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || a.scalar_type() != b.scalar_type()) return "convert all of them to one dtype in get()";
  if (a.dim() == 1 && b.dim() == 1 && a.scalar_type() == at::kLong)
    return "derive the data set from SequenceDataset, which pads its samples, or set data.collate: {name: pad, fields: [...]}";
  if (a.dim() == b.dim() && a.dim() > 0 && a.sizes().slice(1) == b.sizes().slice(1))
    return "data.collate: {name: pad, fields: [...]}, which pads the first dimension";
  return "crop or pad them to one shape in get()";
}

/// Returns the padded length of a field in this batch.
int64_t length_of(std::vector<Sample>& samples, const std::string& field, const PadOptions& options) {
  int64_t longest = 0;
  const at::Tensor* first = nullptr;
  for (auto& sample : samples) {
    const auto* value = detail::find_field(sample, field);
    check(value != nullptr && value->defined() && value->dim() > 0, ErrorKind::Data, kWhere, "sample ", sample.index, " has no field '",
          field, "' with a dimension to pad; hint: data.collate.fields");
    check(detail::find_field(sample, field + "_mask") == nullptr, ErrorKind::Usage, "data.collate.fields",
          "the samples already have a field '", field, "_mask'; allowed: each name once, and names whose masks are new");
    if (first == nullptr) first = value;
    check(value->scalar_type() == first->scalar_type() && value->sizes().slice(1) == first->sizes().slice(1), ErrorKind::Data, kWhere, "'",
          field, "' of sample ", sample.index, " is ", value->scalar_type(), " ", value->sizes(), " and of sample ", samples.front().index,
          " ", first->scalar_type(), " ", first->sizes(), "; only their first dimensions may differ");
    longest = std::max(longest, value->size(0));
  }
  check(first->is_floating_point() || options.value == std::trunc(options.value), ErrorKind::Usage, "data.collate.value", options.value,
        " is not a number of '", field, "', which is ", first->scalar_type());
  check(options.length == 0 || longest <= options.length, ErrorKind::Data, kWhere, "'", field, "' has ", longest,
        " elements in a sample; allowed: at most data.collate.length, ", options.length);
  const auto length =
      std::max<int64_t>(options.length > 0 ? options.length : longest, 1);  // a batch without any element keeps the dimension
  return (length + options.multiple_of - 1) / options.multiple_of * options.multiple_of;
}

}  // namespace

namespace detail {

const at::Tensor* find_field(const Sample& sample, const std::string& name) {
  const auto found = std::find_if(sample.fields.begin(), sample.fields.end(), [&](const auto& field) { return field.first == name; });
  return found == sample.fields.end() ? nullptr : &found->second;
}

at::Tensor* find_field(Sample& sample, const std::string& name) { return const_cast<at::Tensor*>(find_field(std::as_const(sample), name)); }

at::Tensor padded(const at::Tensor& values, int64_t length, double with) {
  const at::Tensor own = values.contiguous();
  auto shape = own.sizes().vec();
  shape.front() = length;
  at::Tensor out = at::full(shape, with, own.options().requires_grad(false));
  if (own.nbytes() > 0) std::memcpy(out.data_ptr(), own.const_data_ptr(), own.nbytes());
  return out;
}

void pad_field(std::vector<Sample>& samples, const std::string& field, double value, int64_t length, const std::string& mask) {
  for (auto& sample : samples) {
    auto& tensor = *find_field(sample, field);
    at::Tensor elements = at::zeros({length}, at::kLong);
    std::fill_n(elements.mutable_data_ptr<int64_t>(), tensor.size(0), int64_t{1});
    tensor = padded(tensor, length, value);
    sample.fields.emplace_back(mask, std::move(elements));
  }
}

}  // namespace detail

const ConfigTable<PadOptions>& PadOptions::config_table() {
  using T = PadOptions;
  static const auto table =
      ConfigTable<T>("collate pad")
          .field("fields", &T::fields, "fields of a sample whose first dimension varies, such as [boxes, labels]")
          .field("value", &T::value, "what is filled in")
          .field("length", &T::length, "of the first dimension in every batch; 0: that of the longest sample", between(0, 1 << 30))
          .field("multiple_of", &T::multiple_of, "the length is rounded up to a multiple of this, so that there are fewer shapes",
                 between(1, 1 << 20));
  return table;
}

Batch stack(const std::vector<Sample>& samples) {
  check(!samples.empty(), ErrorKind::Usage, kWhere, "there are no samples to stack");
  const auto& first = samples.front().fields;
  const auto first_index = samples.front().index;
  check(!first.empty(), ErrorKind::Data, kWhere, "sample ", first_index, " has no tensors");
  Batch out;
  for (size_t f = 0; f < first.size(); ++f) {
    const auto& [name, model] = first[f];
    check(model.defined() && model.device().is_cpu(), ErrorKind::Usage, kWhere, "'", name, "' of sample ", first_index,
          " is not a tensor on the host");
    std::vector<int64_t> shape = model.sizes().vec();
    shape.insert(shape.begin(), static_cast<int64_t>(samples.size()));
    at::Tensor all = at::empty(shape, model.options().requires_grad(false));
    const auto bytes = model.nbytes();
    auto* to = static_cast<char*>(all.data_ptr());
    for (const auto& sample : samples) {
      const auto& fields = sample.fields;
      check(fields.size() == first.size() && fields[f].first == name, ErrorKind::Data, kWhere, "sample ", sample.index,
            " has different fields from sample ", first_index, "; all samples must have the same fields, in the same order");
      const at::Tensor& value = fields[f].second;
      check(value.defined() && value.sizes() == model.sizes() && value.scalar_type() == model.scalar_type(), ErrorKind::Data, kWhere, "'",
            name, "' of sample ", sample.index, " is ", value.scalar_type(), " ", value.sizes(), " and of sample ", first_index, " ",
            model.scalar_type(), " ", model.sizes(), "; they must be equal; hint: ", hint_for(value, model));
      if (bytes > 0) std::memcpy(to, value.contiguous().const_data_ptr(), bytes);
      to += bytes;
    }
    out.set(name, std::move(all));
  }
  return out;
}

Batch pad_and_stack(std::vector<Sample> samples, const PadOptions& options) {
  check_limits(options, "data.collate");
  check(!options.fields.empty(), ErrorKind::Usage, "data.collate.fields", "pad needs the names of the fields whose first dimension varies");
  for (const auto& field : options.fields)
    detail::pad_field(samples, field, options.value, length_of(samples, field, options), field + "_mask");
  return stack(samples);
}

void add_builtin_collates(CollateRegistry& registry) {
  registry.add<NoOptions>("stack", "stacks samples of equal shapes",
                          [](const NoOptions&) -> Collate { return [](const std::vector<Sample>& samples) { return stack(samples); }; });
  registry.add<PadOptions>("pad", "pads the first dimension of fields, with masks, and stacks", [](const PadOptions& options) -> Collate {
    check(!options.fields.empty(), ErrorKind::Usage, "data.collate.fields",
          "pad needs the names of the fields whose first dimension varies");
    return [options](std::vector<Sample> samples) { return pad_and_stack(std::move(samples), options); };
  });
}

}  // namespace npu_train
