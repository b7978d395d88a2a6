#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

#include "data/pad_field.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/documents.hpp"

namespace npu_train {
namespace {

constexpr const char* kPacking = "data.packing";

// Returns "FILE, line 3: document 2", for messages.
std::string name_of_document(const SequenceDataset& documents, int64_t index) {
  const auto place = documents.where(index);
  return str_cat(place, place.empty() ? "" : ": ", "document ", index);
}

std::vector<int64_t> lengths_of(const SequenceDataset& documents) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < documents.size(); ++i) {
    out.push_back(documents.tokens(i));
    if (out.back() >= 1 && out.back() <= documents.longest()) continue;
    throw Error(ErrorKind::Data, kPacking,
                str_cat(name_of_document(documents, i), " has ", out.back(), " tokens; allowed: 1 to ", documents.longest()));
  }
  return out;
}

// Returns the number of the sample to which each document belongs. Samples are numbered in the order in which they are begun. The search
// for the least sufficient room takes logarithmic time, and among equal rooms the oldest sample wins (Johnson, "Near-optimal bin packing
// algorithms", 1973).
std::vector<int64_t> best_fit_decreasing(const std::vector<int64_t>& lengths, int64_t room) {
  std::vector<int64_t> order(lengths.size()), out(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)]; });
  std::set<std::pair<int64_t, int64_t>> open;  // remaining room and number of each sample that is not full
  int64_t samples = 0;
  for (const auto document : order) {
    const auto length = lengths[static_cast<size_t>(document)];
    const auto found = open.lower_bound({length, 0});
    const auto [left, sample] = found != open.end() ? *found : std::pair(room, samples++);
    if (found != open.end()) open.erase(found);
    if (left > length) open.emplace(left - length, sample);
    out[static_cast<size_t>(document)] = sample;
  }
  return out;
}

}  // namespace

int64_t SequenceDataset::tokens(int64_t index) const {
  const auto sample = get(index);
  const auto* input = detail::find_field(sample, "input");
  check(input != nullptr && input->dim() == 1, ErrorKind::Usage, kPacking, "sample ", index, " has no \"input\" of ids, Long [tokens]");
  return input->size(0);
}

PackedDocuments::PackedDocuments(std::shared_ptr<const SequenceDataset> documents) : documents_(std::move(documents)) {
  check(documents_ != nullptr && documents_->size() > 0, ErrorKind::Usage, kPacking, "there are no documents");
  check(documents_->info().num_classes == 0, ErrorKind::Usage, kPacking,
        "the texts have labels, and a sample of several texts would have several; hint: data.packing=false");
  lengths_ = lengths_of(*documents_);
  const auto sample_of = best_fit_decreasing(lengths_, longest());
  // The samples are renumbered in the order of their first documents, so that without shuffling they follow the order of the documents.
  std::vector<int64_t> number(sample_of.size(), -1);
  first_ = {0};
  for (const auto sample : sample_of) {
    auto& of_sample = number[static_cast<size_t>(sample)];
    if (of_sample < 0) {
      of_sample = static_cast<int64_t>(first_.size()) - 1;
      first_.push_back(0);
    }
    ++first_[static_cast<size_t>(of_sample) + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  auto next = first_;
  order_.resize(sample_of.size());
  for (size_t i = 0; i < sample_of.size(); ++i) {
    auto& place = next[static_cast<size_t>(number[static_cast<size_t>(sample_of[i])])];
    order_[static_cast<size_t>(place++)] = static_cast<int64_t>(i);
  }
}

std::vector<int64_t> PackedDocuments::documents(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, kPacking, "sample ", index, " of ", size());
  const auto first_of = [&](int64_t sample) { return order_.begin() + first_[static_cast<size_t>(sample)]; };
  return {first_of(index), first_of(index + 1)};
}

int64_t PackedDocuments::tokens(int64_t index) const {
  int64_t out = 0;
  for (const auto document : documents(index)) out += lengths_[static_cast<size_t>(document)];
  return out;
}

Sample PackedDocuments::get(int64_t index) const {
  const auto count = tokens(index);
  at::Tensor input = at::empty({count}, at::kLong), positions = at::empty({count}, at::kLong), mask = at::ones({count}, at::kLong);
  int64_t begin = 0;
  for (const auto document : documents(index)) {
    const auto sample = documents_->get(document);
    const auto *ids = detail::find_field(sample, "input"), *counted = detail::find_field(sample, "loss_mask");
    const auto length = lengths_[static_cast<size_t>(document)];
    check(ids != nullptr && ids->size(0) == length, ErrorKind::Data, kPacking, name_of_document(*documents_, document), " has ",
          ids != nullptr ? ids->size(0) : 0, " tokens, and had ", length, " when the documents were packed");
    input.narrow(0, begin, length).copy_(*ids);
    positions.narrow(0, begin, length).copy_(at::arange(length, at::kLong));
    if (counted != nullptr) mask.narrow(0, begin, length).copy_(*counted);
    mask.mutable_data_ptr<int64_t>()[begin] = 0;  // nothing predicts the first token
    begin += length;
  }
  return {{{"input", std::move(input)}, {"position_ids", std::move(positions)}, {"loss_mask", std::move(mask)}}, index};
}

std::string PackedDocuments::where(int64_t index) const {
  const auto list = documents(index);
  const auto place = documents_->where(list.front());
  return list.size() == 1 ? place : str_cat(place, " and ", list.size() - 1, list.size() == 2 ? " other document" : " other documents");
}

}  // namespace npu_train
