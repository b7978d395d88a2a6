#include "dist/grouped_sum.hpp"

#include <algorithm>
#include <utility>

namespace npu_train::detail {
namespace {

bool arrived(const std::unique_ptr<Collective>& collective) { return collective == nullptr || collective->done(); }

// Blocks until the collective has finished; returns its times.
ReductionTimes::Span received(std::unique_ptr<Collective>& collective) {
  if (collective == nullptr) return {};
  collective->wait();
  return std::exchange(collective, nullptr)->span();
}

}  // namespace

void GroupedSum::begin(const at::Tensor& content, double unit) {
  content_ = content;
  unit_ = unit;
  steps_ = 0;
  turned_ = false;
  times_ = {};
  if (groups_.members->size() == 1) return;
  inside_ = groups_.members->reduce(content_);
  if (!leads()) times_.bytes = static_cast<int64_t>(content_.nbytes());
}

bool GroupedSum::ready() {
  if (steps_ == 0) return arrived(inside_);
  if (compressor_ == nullptr) return arrived(between_);
  return steps_ == 1 ? compressor_->arrived() : (turned_ || !turns()) && compressor_->done();
}

bool GroupedSum::done() {
  return arrived(inside_) && arrived(between_) && arrived(back_) && (compressor_ == nullptr || compressor_->done());
}

void GroupedSum::step() {
  switch (steps_) {
    case 0:
      times_.exchange = received(inside_);
      if (leads()) {
        send_between();
        steps_ = compressor_ != nullptr ? 1 : 2;
      } else {
        give_back();
      }
      break;
    case 1:
      compressor_->pass_on();
      steps_ = 2;
      break;
    case 2:
      receive_between();
      give_back();
      break;
    default:
      break;
  }
}

void GroupedSum::send_between() {
  if (compressor_ != nullptr) return compressor_->send(content_, unit_);
  const auto bytes = static_cast<int64_t>(content_.nbytes());
  times_.between_bytes = 2 * (bytes - bytes / groups_.leaders->size());  // as much as a ring sends
  between_ = groups_.leaders->all_reduce(content_);
}

void GroupedSum::receive_between() {
  if (compressor_ != nullptr) {
    content_.copy_(compressor_->finish());
    const auto& times = compressor_->times();
    times_.between_bytes = times.bytes;
    times_.between = {times.exchange.end > 0 ? times.exchange.begin : times.gather.begin, std::max(times.exchange.end, times.gather.end)};
  } else {
    times_.between = received(between_);
  }
  times_.bytes += times_.between_bytes;
}

// Sends the sum from the first rank of a group to the other ranks of the group.
void GroupedSum::give_back() {
  steps_ = kEnd;
  if (groups_.members->size() == 1) return;
  if (leads()) times_.bytes += static_cast<int64_t>(content_.nbytes()) * (groups_.members->size() - 1);
  back_ = groups_.members->distribute(content_);
}

void GroupedSum::turn() {
  if (compressor_ != nullptr) compressor_->turn();
  turned_ = true;
}

void GroupedSum::finish() {
  while (steps_ < kEnd) step();
  times_.gather = received(back_);
  content_.reset();
}

}  // namespace npu_train::detail
