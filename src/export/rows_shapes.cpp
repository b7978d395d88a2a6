// Shapes, slices, copies, and tensors created from sizes.
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "export/rows.hpp"

namespace npu_train::onnx {
namespace {

bool same_shape_in_all_records(Call& c) {
  for (size_t r = 0; r < c.to.records().count(); ++r)
    if (!c.to.records().tensor(c.op().reads[0], r).sizes().equals(c.to.records().tensor(c.op().gives[0], r).sizes())) return false;
  return true;
}

// Returns the size of one dimension in every record.
Ints along(Call& c, size_t value, int64_t dim) {
  Ints out;
  for (size_t r = 0; r < c.to.records().count(); ++r) out.push_back(c.to.records().tensor(value, r).size(dim));
  return out;
}

bool is_one_number(const Ints& by_record) {
  return std::all_of(by_record.begin(), by_record.end(), [&](int64_t size) { return size == by_record[0]; });
}

// Writes the new shape with 0 (keep the input's size) and one -1 if that suffices; otherwise computes it from the input sizes.
void reshape(Call& c) {
  if (same_shape_in_all_records(c)) return c.give(c.input(0));
  const auto from = c.op().reads[0], to = c.op().gives[0];
  Ints sizes;
  for (int64_t d = 0; d < c.result().dim(); ++d) {
    const auto size = along(c, to, d);
    if (is_one_number(size))
      sizes.push_back(size[0]);
    else
      sizes.push_back(d < c.rank() && size == along(c, from, d) ? 0 : -1);
  }
  if (std::count(sizes.begin(), sizes.end(), -1) > 1) return c.give(c.to.reshape(c.input(0), c.result_sizes()));
  c.give(c.to.node("Reshape", {c.input(0), c.to.ints(sizes)}));
}

void unsqueeze(Call& c) { c.give(c.to.node("Unsqueeze", {c.input(0), c.to.ints({c.axis(1, c.rank() + 1)})})); }

void squeeze(Call& c) {
  const auto dims = c.op().args.size() > 1 ? c.ints(1) : Ints();
  const auto named = [&](int64_t d) {
    return std::find(dims.begin(), dims.end(), d) != dims.end() || std::find(dims.begin(), dims.end(), d - c.rank()) != dims.end();
  };
  Ints axes;
  for (int64_t d = 0; d < c.rank(); ++d)
    if (c.tensor(0).size(d) == 1 && (c.op().args.size() == 1 || named(d))) axes.push_back(d);
  c.give(axes.empty() ? c.input(0) : c.to.node("Squeeze", {c.input(0), c.to.ints(axes)}));
}

void expand(Call& c) {
  if (same_shape_in_all_records(c)) return c.give(c.input(0));
  c.give(c.to.node("Expand", {c.input(0), c.to.shape(c.result_sizes())}));
}

void repeat(Call& c) {
  Sizes counts;
  const auto wanted = c.ints(1);
  for (size_t i = 0; i < wanted.size(); ++i) counts.push_back(c.size(1, i));
  std::string x = c.input(0);
  const auto more = static_cast<int64_t>(wanted.size()) - c.rank();
  if (more > 0) {
    Ints front(static_cast<size_t>(more));
    std::iota(front.begin(), front.end(), 0);
    x = c.to.node("Unsqueeze", {x, c.to.ints(front)});
  }
  c.give(c.to.node("Tile", {x, c.to.shape(counts)}));
}

void permute_to(Call& c, const Ints& perm) { c.give(c.to.node("Transpose", {c.input(0)}, {{"perm", perm}})); }

Ints in_order(int64_t rank) {
  Ints out(static_cast<size_t>(rank));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void permute(Call& c) {
  Ints perm = c.ints(1);
  for (auto& d : perm) d = d < 0 ? d + c.rank() : d;
  permute_to(c, perm);
}

void transpose(Call& c) {
  auto perm = in_order(c.rank());
  std::swap(perm[static_cast<size_t>(c.axis(1, c.rank()))], perm[static_cast<size_t>(c.axis(2, c.rank()))]);
  permute_to(c, perm);
}

void matrix_transpose(Call& c) {
  if (c.rank() < 2) return c.give(c.input(0));
  permute_to(c, {1, 0});
}

void cat(Call& c) {
  Names parts;
  size_t i = 0;
  for (const auto& name : c.inputs(0)) {
    const auto& part = c.to.records().tensor(c.op().reads[i++]);
    if (part.dim() == 1 && part.numel() == 0 && c.result().dim() > 1) continue;  // libtorch ignores such tensors
    parts.push_back(c.to.cast(name, part.scalar_type(), c.result().scalar_type()));
  }
  c.give(c.to.node("Concat", parts, {{"axis", c.axis(1, c.result().dim())}}));
}

void stack(Call& c) {
  const auto axis = c.axis(1, c.result().dim());
  Names parts;
  for (const auto& name : c.inputs(0)) parts.push_back(c.to.node("Unsqueeze", {name, c.to.ints({axis})}));
  c.give(c.to.node("Concat", parts, {{"axis", axis}}));
}

void slice(Call& c) {
  if (same_shape_in_all_records(c) && c.integer(4) == 1) return c.give(c.input(0));
  const auto start = c.has(2) ? c.size(2) : Size{.factor = 0};
  const auto max = std::numeric_limits<int64_t>::max();
  const auto end = c.has(3) ? c.size(3) : Size{.factor = max};
  c.give(c.to.node("Slice",
                   {c.input(0), c.to.shape({start}), c.to.shape({end}), c.to.ints({c.axis(1, c.rank())}), c.to.ints({c.integer(4)})}));
}

void select(Call& c) {
  const auto index = c.size(2);
  if (!index.fixed()) c.to.refuse("selects an index that depends on a size", "count from the end with a negative index");
  c.give(c.to.node("Gather", {c.input(0), c.to.number(index.factor, at::kLong)}, {{"axis", c.axis(1, c.rank())}}));
}

Names split_along(Call& c, int64_t axis) {
  Sizes sizes;
  for (const auto value : c.op().gives) {
    const auto by_record = along(c, value, axis);
    const auto size = c.to.records().size_of(by_record);
    if (!size) c.to.refuse("splits a size that depends on a free size into unequal parts", "split another dimension, or into equal parts");
    sizes.push_back(*size);
  }
  return c.to.nodes("Split", {c.input(0), c.to.shape(sizes)}, c.op().gives.size(), {{"axis", axis}});
}

void split(Call& c) {
  const auto axis = c.op().args.size() > 2 ? c.axis(2, c.rank()) : 0;
  const auto parts = split_along(c, axis);
  for (size_t i = 0; i < parts.size(); ++i) c.give(parts[i], i);
}

void unbind(Call& c) {
  const auto axis = c.axis(1, c.rank());
  const auto count = static_cast<int64_t>(c.op().gives.size());
  const auto parts =
      c.to.nodes("Split", {c.input(0), c.to.ints(Ints(static_cast<size_t>(count), 1))}, c.op().gives.size(), {{"axis", axis}});
  for (size_t i = 0; i < parts.size(); ++i) c.give(c.to.node("Squeeze", {parts[i], c.to.ints({axis})}), i);
}

// Lowers copies, casts and aliases.
void same(Call& c) { c.give(c.operand(0, c.result().scalar_type())); }

void copy_into(Call& c) {
  const auto type = c.result().scalar_type();
  std::string y = c.operand(1, type);
  bool equal = true;
  for (size_t r = 0; r < c.to.records().count(); ++r)
    equal = equal && c.to.records().tensor(c.op().reads[0], r).sizes().equals(c.to.records().tensor(c.op().reads[1], r).sizes());
  c.give(equal ? y : c.to.node("Expand", {y, c.to.shape(c.result_sizes())}));
}

void pad(Call& c, const char* mode, size_t value) {
  const auto pads = c.ints(1);
  const auto rank = static_cast<size_t>(c.rank());
  Ints all(2 * rank, 0);
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    all[rank - 1 - i] = pads[2 * i];
    all[2 * rank - 1 - i] = pads[2 * i + 1];
  }
  const auto fill = value < c.op().args.size() ? c.to.number(c.op().args[value].toScalar(), c.type()) : std::string();
  c.give(c.to.node("Pad", {c.input(0), c.to.ints(all), fill}, {{"mode", std::string(mode)}}));
}
constexpr size_t kNoValue = 99;

void index_select(Call& c) { c.give(c.to.node("Gather", {c.input(0), c.input(2)}, {{"axis", c.axis(1, c.rank())}})); }
void gather(Call& c) { c.give(c.to.node("GatherElements", {c.input(0), c.input(2)}, {{"axis", c.axis(1, c.rank())}})); }

// Lowers x[:, i] with one index tensor.
void index(Call& c) {
  const auto given = c.op().args[1].toListRef();
  int64_t axis = -1, count = 0;
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].isTensor() && given[i].toTensor().defined()) axis = static_cast<int64_t>(i), ++count;
  if (count != 1 || !at::isIntegralType(c.to.records().tensor(c.op().reads[1]).scalar_type(), false))
    c.to.refuse("indexes by several tensors or by a mask", "use torch::gather, index_select or where");
  c.give(c.to.node("Gather", {c.input(0), c.inputs(1)[0]}, {{"axis", axis}}));
}

void triangle(Call& c, int64_t upper) {
  c.give(c.to.node("Trilu", {c.input(0), c.to.number(c.integer(1), at::kLong)}, {{"upper", upper}}));
}

// Rotates: elements shifted beyond one end reappear at the other.
void roll(Call& c) {
  const auto shifts = c.ints(1), dims = c.ints(2);
  if (dims.empty()) c.to.refuse("rolls the flattened tensor", "name the dimensions");
  std::string y = c.input(0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto axis = c.to.ints({dims[i] < 0 ? dims[i] + c.rank() : dims[i]});
    const auto size = c.tensor(0).size(dims[i]);
    const auto shift = (shifts[i] % size + size) % size;
    if (shift == 0) continue;
    if (!is_one_number(along(c, c.op().reads[0], dims[i]))) c.to.refuse("rolls a free size", "fix the size (OnnxOptions::dynamic)");
    const auto part = [&](int64_t from, int64_t to) { return c.to.node("Slice", {y, c.to.ints({from}), c.to.ints({to}), axis}); };
    const auto end = part(-shift, std::numeric_limits<int64_t>::max()), begin = part(0, -shift);
    y = c.to.node("Concat", {end, begin}, {{"axis", dims[i]}});
  }
  c.give(y);
}

void filled(Call& c, const c10::Scalar& value) {
  c.give(c.to.node("Expand", {c.to.number(value, c.result().scalar_type()), c.to.shape(c.result_sizes())}));
}

void fill(Call& c) {
  if (!c.op().tensor(1)) return filled(c, c.op().args[1].toScalar());
  c.give(c.to.node("Expand", {c.operand(1, c.result().scalar_type()), c.to.shape(c.result_sizes())}));
}

void arange(Call& c) {
  const auto type = c.result().scalar_type();
  const auto overload = c.op().op.schema().overload_name();
  const size_t end = overload.empty() ? 0 : 1;
  const auto scalar = [&](size_t i) -> std::string {
    if (!c.op().args[i].isInt()) return c.to.number(c.op().args[i].toScalar(), type);
    return c.to.cast(c.to.node("Squeeze", {c.to.shape({c.size(i)}), c.to.ints({0})}), at::kLong, type);
  };
  const auto start = overload.empty() ? c.to.number(0, type) : scalar(0);
  const auto step = overload == "start_step" ? scalar(2) : c.to.number(1, type);
  c.give(c.to.node("Range", {start, scalar(end), step}));
}

}  // namespace

const std::vector<Row>& shape_rows() {
  static const std::vector<Row> rows{
      {"view", 15, 20, reshape, true},
      {"reshape", 15, 20, reshape, true},
      {"_unsafe_view", 15, 20, reshape, true},
      {"view_as", 15, 20, reshape},
      {"reshape_as", 15, 20, reshape},
      {"flatten", 15, 20, reshape},
      {"unflatten", 15, 20, reshape, true},
      {"unsqueeze", 15, 20, unsqueeze},
      {"squeeze", 15, 20, squeeze},
      {"expand", 15, 20, expand, true},
      {"expand_as", 15, 20, expand},
      {"repeat", 15, 20, repeat, true},
      {"permute", 15, 20, permute},
      {"transpose", 15, 20, transpose},
      {"t", 15, 20, matrix_transpose},
      {"cat", 15, 20, cat},
      {"stack", 15, 20, stack},
      {"slice", 15, 20, slice, true},
      {"select", 15, 20, select, true},
      {"split", 15, 20, split, true},
      {"split_with_sizes", 15, 20, split, true},
      {"chunk", 15, 20, split},
      {"unsafe_chunk", 15, 20, split},
      {"unbind", 15, 20, unbind},
      {"contiguous", 15, 20, same},
      {"clone", 15, 20, same},
      {"detach", 15, 20, same},
      {"alias", 15, 20, same},
      {"lift_fresh", 15, 20, same},
      {"to", 15, 20, same},
      {"_to_copy", 15, 20, same},
      {"type_as", 15, 20, same},
      {"copy", 15, 20, copy_into},
      {"constant_pad_nd", 15, 20, [](Call& c) { pad(c, "constant", 2); }},
      {"reflection_pad1d", 15, 20, [](Call& c) { pad(c, "reflect", kNoValue); }},
      {"reflection_pad2d", 15, 20, [](Call& c) { pad(c, "reflect", kNoValue); }},
      {"replication_pad1d", 15, 20, [](Call& c) { pad(c, "edge", kNoValue); }},
      {"replication_pad2d", 15, 20, [](Call& c) { pad(c, "edge", kNoValue); }},
      {"index_select", 15, 20, index_select},
      {"gather", 15, 20, gather},
      {"index", 15, 20, index},
      {"tril", 15, 20, [](Call& c) { triangle(c, 0); }},
      {"triu", 15, 20, [](Call& c) { triangle(c, 1); }},
      {"roll", 15, 20, roll},
      {"zeros", 15, 20, [](Call& c) { filled(c, 0); }, true},
      {"zeros_like", 15, 20, [](Call& c) { filled(c, 0); }},
      {"new_zeros", 15, 20, [](Call& c) { filled(c, 0); }, true},
      {"zero", 15, 20, [](Call& c) { filled(c, 0); }},
      {"ones", 15, 20, [](Call& c) { filled(c, 1); }, true},
      {"ones_like", 15, 20, [](Call& c) { filled(c, 1); }},
      {"new_ones", 15, 20, [](Call& c) { filled(c, 1); }, true},
      {"full", 15, 20, [](Call& c) { filled(c, c.op().args[1].toScalar()); }, true},
      {"full_like", 15, 20, [](Call& c) { filled(c, c.op().args[1].toScalar()); }},
      {"new_full", 15, 20, [](Call& c) { filled(c, c.op().args[2].toScalar()); }, true},
      {"fill", 15, 20, fill},
      {"arange", 15, 20, arange, true},
  };
  return rows;
}

}  // namespace npu_train::onnx
