#include <array>

#include "export/lowering.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train::onnx {
namespace {

// Counts the tensors in an argument.
size_t tensors_in(const c10::IValue& arg) { return detail::tensors_of(std::array<c10::IValue, 1>{arg}).size(); }

}  // namespace

Call::Call(Lowering& lowering, size_t op) : to(lowering), index_(op) {}

std::vector<size_t> Call::values(size_t i) const {
  size_t first = 0;
  for (size_t k = 0; k < i; ++k) first += tensors_in(op().args[k]);
  const auto begin = op().reads.begin() + static_cast<ptrdiff_t>(first);
  return {begin, begin + static_cast<ptrdiff_t>(tensors_in(op().args[i]))};
}

bool Call::has(size_t i) const {
  return i < op().args.size() && !op().args[i].isNone() && !(op().args[i].isTensor() && !op().args[i].toTensor().defined());
}

const at::Tensor& Call::tensor(size_t i) const { return to.records().tensor(values(i).at(0)); }

std::string Call::input(size_t i) { return has(i) ? to.name_of(values(i).at(0)) : std::string(); }

Names Call::inputs(size_t i) {
  Names out;
  for (const auto value : values(i)) out.push_back(to.name_of(value));
  return out;
}

std::string Call::operand(size_t i, at::ScalarType type) {
  return op().tensor(i) ? to.cast(input(i), tensor(i).scalar_type(), type) : to.number(op().args[i].toScalar(), type);
}

double Call::number(size_t i) const { return op().args[i].toScalar().toDouble(); }

Ints Call::ints(size_t i) const {
  const auto& arg = op().args[i];
  if (arg.isNone()) return {};
  return arg.isInt() ? Ints{arg.toInt()} : arg.toIntVector();
}

Ints Call::ints(size_t i, size_t count) const {
  Ints out = ints(i);
  while (!out.empty() && out.size() < count) out.push_back(out.back());
  return out;
}

int64_t Call::axis(size_t i, int64_t rank) const {
  const auto dim = integer(i);
  return dim < 0 ? dim + rank : dim;
}

Size Call::must_be_multiple(const Ints& by_record) const {
  if (const auto size = to.records().size_of(by_record)) return *size;
  std::string seen;
  for (size_t r = 0; r < by_record.size(); ++r) {
    const auto& free = to.records().free();
    seen += r == 0 ? std::to_string(by_record[0]) : str_cat(", ", by_record[r], " where ", free[r - 1].name, " is ", free[r - 1].other);
    if (r == 0)
      for (const auto& size : free) seen += str_cat(&size == &free[0] ? " where " : " and ", size.name, " is ", size.base);
  }
  to.refuse("has a size that is not a multiple of a free size: " + seen,
            "compute sizes as multiples of the batch, use -1 for one, or fix the size (OnnxOptions::dynamic, --dynamic)");
}

Size Call::size(size_t i) const {
  Ints by_record;
  for (size_t r = 0; r < to.records().count(); ++r) by_record.push_back(to.records().graph(r).ops()[index_].args[i].toInt());
  return must_be_multiple(by_record);
}

Size Call::size(size_t i, size_t k) const {
  Ints by_record;
  for (size_t r = 0; r < to.records().count(); ++r) by_record.push_back(to.records().graph(r).ops()[index_].args[i].toIntVector()[k]);
  return must_be_multiple(by_record);
}

Sizes Call::sizes_of(size_t i) const {
  Sizes out;
  const auto value = values(i).at(0);
  for (int64_t d = 0; d < tensor(i).dim(); ++d) {
    Ints by_record;
    for (size_t r = 0; r < to.records().count(); ++r) by_record.push_back(to.records().tensor(value, r).size(d));
    out.push_back(must_be_multiple(by_record));
  }
  return out;
}

const at::Tensor& Call::result(size_t k) const { return to.records().tensor(op().gives[k]); }

Sizes Call::result_sizes(size_t k) const {
  Sizes out;
  for (int64_t d = 0; d < result(k).dim(); ++d) {
    Ints by_record;
    for (size_t r = 0; r < to.records().count(); ++r) by_record.push_back(to.records().tensor(op().gives[k], r).size(d));
    out.push_back(must_be_multiple(by_record));
  }
  return out;
}

}  // namespace npu_train::onnx
