#include "tools/align/leaf_maker.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <c10/util/BFloat16.h>

#include <cmath>
#include <limits>

#include "npu_train/core/seed.hpp"
#include "tools/align/dump_names.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kRowsAtOnce = 256;
constexpr size_t kMostLeafItems = 64;  // largest number of items dumped from a list in an operator's arguments

DumpNode plain(const std::string& type, const std::string& json) {
  DumpLeaf leaf;
  leaf.type = type;
  leaf.value = json;
  return DumpNode::of(std::move(leaf));
}

// Returns the smallest magnitude that counts as an overflow.
double limit_of(const std::string& dtype, bool saturates) {
  if (!saturates) return std::numeric_limits<double>::infinity();
  if (dtype == "torch.float16") return 65504.0;
  if (dtype == "torch.bfloat16") return static_cast<double>(static_cast<float>(std::numeric_limits<c10::BFloat16>::max()));
  return std::numeric_limits<float>::max();
}

bool has_version(const at::Tensor& t) { return !t.is_inference() && t.layout() == at::kStrided; }

}  // namespace

at::Tensor sample_positions(int64_t n, double share, uint64_t seed) {
  const auto count = std::max<int64_t>(1, std::llround(static_cast<double>(n) * share));
  at::Tensor out = at::empty({std::min(count, n)}, at::kLong);
  auto* p = out.mutable_data_ptr<int64_t>();
  Philox random(derive_seed(seed, "dump elements", static_cast<uint64_t>(n)));
  const double step = static_cast<double>(n) / static_cast<double>(out.numel());
  for (int64_t i = 0; i < out.numel(); ++i)  // draws one element from each of several equal pieces
    p[i] = std::min(n - 1, static_cast<int64_t>((static_cast<double>(i) + random.uniform()) * step));
  return out;
}

LeafMaker::LeafMaker(const DumpOptions& options, TensorSink& sink, std::filesystem::path tensors, bool saturates)
    : options_(options), sink_(sink), tensors_(std::move(tensors)), saturates_(saturates) {}

DumpNode LeafMaker::number(double value) { return plain("float", json_number(value)); }
DumpNode LeafMaker::text(const std::string& value) { return plain("str", json_string(value)); }

std::string LeafMaker::file_of(const std::string& name) const {
  std::string file = name + "." + options_.format;
  for (char& c : file)
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20) c = '_';  // users choose the names of parameters and values
  return file;
}

void LeafMaker::save(const at::Tensor& value, const std::string& name, DumpLeaf& leaf) {
  at::Tensor kept = value.detach();
  if (options_.sample_elements < 1 && kept.numel() > 1) {
    const auto positions = sample_positions(kept.numel(), options_.sample_elements, static_cast<uint64_t>(options_.seed));
    kept = kept.reshape({-1}).index_select(0, positions.to(kept.device()));
    leaf.sampled = kept.numel();
  }
  kept = kept.to(at::kCPU).contiguous();
  if (options_.async && kept.is_alias_of(value)) kept = kept.clone();  // the step may change the tensor later
  leaf.data_name = file_of(name);
  sink_.write(tensors_ / leaf.data_name, std::move(kept));
}

void LeafMaker::summarize(const at::Tensor& value, const std::shared_ptr<DumpLeaf>& leaf) {
  if (options_.summary == "crc32" && options_.task != "overflow_check") {
    leaf->crc = crc32_of(value);
    return;
  }
  leaf->statistics.emplace();
  if (value.is_cpu()) {
    *leaf->statistics = statistics_of(value);
    return;
  }
  if (value.numel() == 0) return;
  rows_.emplace_back(device_statistics(value), leaf);
  if (rows_.size() >= kRowsAtOnce) resolve();
}

DumpNode LeafMaker::again(const Known& known, const at::Tensor& value, const std::string& name, bool keep) {
  DumpNode out{DumpNode::Kind::Leaf, known.leaf, {}};
  if (!keep) return out;
  if (known.leaf->statistics && !value.is_cpu()) resolve();  // a copy of the leaf would lack the pending statistics
  out = DumpNode::of(*known.leaf);
  if (known.leaf->data_name.empty()) {
    save(value, name, *out.leaf);
  } else {
    out.leaf->data_name = file_of(name);
    sink_.link(tensors_ / known.leaf->data_name, tensors_ / out.leaf->data_name);
  }
  return out;
}

DumpNode LeafMaker::tensor(const at::Tensor& value, const std::string& name, bool keep) {
  if (!value.defined()) return {};
  const at::NoGradGuard no_grad;
  keep |= options_.task == "tensor";
  const bool comparable = has_version(value);
  if (const auto found = known_.find(value.unsafeGetTensorImpl());
      comparable && found != known_.end() && !found->second.tensor.expired() && found->second.version == value._version())
    return again(found->second, value, name, keep);
  auto leaf = std::make_shared<DumpLeaf>();
  leaf->type = "torch.Tensor";
  leaf->dtype = dtype_text(value.scalar_type());
  leaf->shape = value.sizes().vec();
  leaf->requires_grad = value.requires_grad();
  if (value.layout() == at::kStrided) {
    summarize(value, leaf);
    if (keep) save(value, name, *leaf);
  }
  if (comparable)
    known_.insert_or_assign(value.unsafeGetTensorImpl(),
                            Known{c10::weak_intrusive_ptr<at::TensorImpl>(value.getIntrusivePtr()), value._version(), leaf});
  return {DumpNode::Kind::Leaf, leaf, {}};
}

DumpNode LeafMaker::value(const c10::IValue& value, const std::string& name, bool keep) {
  if (value.isTensor()) return tensor(value.toTensor(), name, keep);
  if (value.isInt()) return plain("int", std::to_string(value.toInt()));
  if (value.isDouble()) return plain("float", json_number(value.toDouble()));
  if (value.isBool()) return plain("bool", value.toBool() ? "true" : "false");
  if (value.isString()) return text(value.toStringRef());
  if (!value.isList()) return {};
  auto out = DumpNode::list();
  const auto items = value.toListRef();
  for (size_t i = 0; i < items.size() && i < kMostLeafItems; ++i) out.add(this->value(items[i], name + "." + std::to_string(i), keep));
  return out;
}

void LeafMaker::resolve() {
  if (rows_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> rows;
  for (const auto& [row, leaf] : rows_) rows.push_back(row);
  const at::Tensor host = at::stack(rows).cpu();
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i].second->statistics = from_device(host[static_cast<int64_t>(i)]);
  rows_.clear();
}

bool LeafMaker::overflowed(const DumpNode& node) {
  resolve();
  if (node.kind == DumpNode::Kind::Leaf && node.leaf->statistics) {
    const auto& s = *node.leaf->statistics;
    const double limit = limit_of(node.leaf->dtype, saturates_);
    const auto beyond = [&](const std::optional<double>& v) { return v && !(std::abs(*v) < limit); };  // also true for NaN
    return beyond(s.max) || beyond(s.min);
  }
  for (const auto& [key, item] : node.items)
    if (overflowed(item)) return true;
  return false;
}

}  // namespace npu_train::detail
