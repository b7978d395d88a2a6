#include "dist/operator_sequence.hpp"

#include <algorithm>

namespace npu_train::detail {
namespace {

// A slot that libtorch passes to the threads of autograd; libtorch itself uses this one only on phones.
const auto kSlot = c10::DebugInfoKind::MOBILE_RUNTIME_INFO;

}  // namespace

struct OperatorSequence::Record final : c10::DebugInfoBase {
  explicit Record(bool recorded = true) : seen(recorded) {}
  static std::shared_ptr<Record> unseen() {
    static const auto one = std::make_shared<Record>(false);
    return one;
  }
  const bool seen;
  std::mutex mutex;
  std::string names;
};

OperatorSequence::OperatorSequence()
    : record_(std::make_shared<Record>()),
      guard_(std::make_unique<c10::DebugInfoGuard>(kSlot, record_)),
      handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&OperatorSequence::on_operator).scopes({at::RecordScope::FUNCTION}))) {}

OperatorSequence::~OperatorSequence() { stop(); }

std::string OperatorSequence::stop() {
  if (guard_ == nullptr) return {};
  at::removeCallback(handle_);
  guard_.reset();
  return std::move(record_->names);
}

std::unique_ptr<at::ObserverContext> OperatorSequence::on_operator(const at::RecordFunction& fn) {
  auto* record = static_cast<Record*>(c10::ThreadLocalDebugInfo::get(kSlot));
  if (record == nullptr || !record->seen) return nullptr;
  const std::lock_guard<std::mutex> lock(record->mutex);
  record->names.append(fn.name()).push_back('\n');
  return nullptr;
}

// DebugInfoGuard ignores a null pointer, so another record, which records nothing, hides the current one.
OperatorSequence::Unseen::Unseen() : guard_(kSlot, Record::unseen()) {}

LineDifference first_difference(const std::string& a, const std::string& b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto before = std::string_view(a).substr(0, static_cast<size_t>(in_a - a.begin()));
  const auto begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto line = [begin](const std::string& text) {
    return begin >= text.size() ? "" : text.substr(begin, text.find('\n', begin) - begin);
  };
  return {1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n')), line(a), line(b)};
}

}  // namespace npu_train::detail
