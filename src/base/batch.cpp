#include "npu_train/base/batch.hpp"

#include <algorithm>
#include <utility>

#include "base/named_fields.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

using detail::field_named;

}  // namespace

Batch::Batch(at::Tensor input, at::Tensor target) {
  check(input.defined() && input.dim() > 0, ErrorKind::Usage, "Batch",
        "the input must be a tensor whose first dimension counts the samples");
  size = input.size(0);
  weight = static_cast<double>(size);
  fields_.emplace_back("input", std::move(input));
  if (target.defined()) fields_.emplace_back("target", std::move(target));
}

bool Batch::has(const std::string& name) const { return field_named(fields_, name) != fields_.end(); }

const at::Tensor& Batch::at(const std::string& name) const {
  const auto found = field_named(fields_, name);
  if (found != fields_.end()) return found->second;
  const auto near = nearest_name(name, detail::names_of(fields_));
  throw Error(ErrorKind::Usage, "Batch",
              "there is no field '" + name + "'" + (near.empty() ? "" : ", did you mean '" + near + "'?") +
                  "; available: " + detail::names_text(fields_));
}

void Batch::set(const std::string& name, at::Tensor value) {
  check(!name.empty(), ErrorKind::Usage, "Batch", "a field must have a name");
  check(value.defined(), ErrorKind::Usage, "Batch", "the field '", name, "' is an undefined tensor");
  const auto found = field_named(fields_, name);
  if (found != fields_.end()) {
    found->second = std::move(value);
  } else {
    fields_.emplace_back(name, std::move(value));
  }
}

void Batch::erase(const std::string& name) {
  const auto found = field_named(fields_, name);
  if (found != fields_.end()) fields_.erase(found);
}

int64_t Batch::rows() const {
  if (has("input")) return at("input").dim() > 0 ? at("input").size(0) : 0;
  for (const auto& [name, value] : fields_)
    if (value.dim() > 0) return value.size(0);
  return 0;
}

Batch Batch::finished() const {
  Batch out = *this;
  const auto works = std::exchange(out.pending, {});
  for (const auto& work : works) out = work(std::move(out));
  return out;
}

Batch Batch::narrow(int64_t first, int64_t count) const {
  if (!pending.empty()) return finished().narrow(first, count);  // pending changes may mix neighbouring samples
  const auto all = rows();
  check(first >= 0 && count >= 0 && first + count <= all, ErrorKind::Usage, "Batch", "rows ", first, " to ", first + count,
        " of a batch of ", all);
  auto out = map([&](const at::Tensor& t) { return t.dim() > 0 && t.size(0) == all ? t.narrow(0, first, count) : t; });
  out.size = std::clamp<int64_t>(size - first, 0, count);
  out.weight = size > 0 ? weight * static_cast<double>(out.size) / static_cast<double>(size) : 0;
  const auto held = static_cast<int64_t>(ids.size());
  out.ids.assign(ids.begin() + std::min(first, held), ids.begin() + std::min(first + out.size, held));
  return out;
}

Batch Batch::map(const std::function<at::Tensor(const at::Tensor&)>& fn) const {
  Batch out = *this;
  for (auto& field : out.fields_) field.second = fn(field.second);
  return out;
}

int64_t Batch::nbytes() const {
  int64_t sum = 0;
  for (const auto& field : fields_) sum += static_cast<int64_t>(field.second.nbytes());
  return sum;
}

Outputs::Outputs(at::Tensor only) : fields_{{"output", std::move(only)}} {}

bool Outputs::has(const std::string& name) const { return detail::field_named(fields_, name) != fields_.end(); }

const at::Tensor& Outputs::at(const std::string& name) const {
  const auto found = detail::field_named(fields_, name);
  if (found != fields_.end()) return found->second;
  throw Error(ErrorKind::Usage, "Outputs", "the model has no output '" + name + "'; it has: " + detail::names_text(fields_));
}

const at::Tensor& Outputs::first() const {
  static const at::Tensor none;
  return fields_.empty() ? none : fields_.front().second;
}

}  // namespace npu_train
