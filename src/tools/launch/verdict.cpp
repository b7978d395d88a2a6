#include "tools/launch/verdict.hpp"

#include <algorithm>
#include <csignal>

#include "npu_train/core/error.hpp"
#include "tools/launch/signals.hpp"

namespace npu_train {
namespace {

constexpr int kPeer = static_cast<int>(ErrorKind::Peer);
constexpr int kBySignal = 128;

std::string how(const RankEnd& end) {
  if (!end.signalled) return " ended with exit code " + std::to_string(end.status);
  const auto text = " was killed by " + signal_text(end.status);
  return end.status == SIGKILL ? text + ", as the system does when memory runs out" : text;
}

/// Returns the signal that ended the rank, either directly or as its exit code says (128 + signal); 0 if none.
int signal_of(const RankEnd& end) {
  if (end.signalled) return end.status;
  return end.status > kBySignal ? end.status - kBySignal : 0;
}

}  // namespace

std::string Verdict::name(int rank) const { return "rank " + std::to_string(rank) + " of " + std::to_string(nproc_) + " on host " + host_; }

void Verdict::add(const RankEnd& end) {
  if (!end.signalled && end.status == 0) return;
  failed_ = true;
  const int signal = signal_of(end);
  if (signal != 0 && (signal == stop_ || ours_.contains(signal) || stopped_.contains(end.rank))) return;
  if (!end.signalled && is_stop_signal(signal)) {  // the rank itself received the signal, and stopped the others
    if (stop_ == 0) stop_ = signal;
    return;
  }
  const auto text = name(end.rank) + how(end);
  if (end.signalled || end.status != kPeer)
    causes_.push_back({text, end.signalled ? kPeer : end.status});
  else if (first_victim_.empty())
    first_victim_ = text + ": it lost another rank";
}

void Verdict::add_stopped(int rank) {
  if (stopped_.insert(rank).second) causes_.push_back({name(rank) + " was stopped (SIGSTOP), and others waited for it in vain", kPeer});
}

void Verdict::add_store(const RankEnd& end) {
  failed_ = store_ended_ = true;
  causes_.push_back({"the store of the run on host " + host_ + how(end), kPeer});
}

int Verdict::exit_code() const {
  if (!failed_) return 0;
  for (const auto& cause : causes_)
    if (cause.code != kPeer) return cause.code;
  return causes_.empty() && stop_ != 0 ? kBySignal + stop_ : kPeer;
}

std::string Verdict::message() const {
  if (causes_.empty()) return stop_ == 0 ? first_victim_ : "";
  const auto& first = causes_.front();
  const auto decisive = std::find_if(causes_.begin(), causes_.end(), [&](const Cause& c) { return c.code == exit_code(); });
  return first.text + (decisive->code == first.code ? "" : "; " + decisive->text);
}

bool Verdict::may_restart() const {
  const auto is = [code = exit_code()](ErrorKind kind) { return code == static_cast<int>(kind); };
  return failed_ && stop_ == 0 && !store_ended_ && !is(ErrorKind::Usage) && !is(ErrorKind::Diverged) && !is(ErrorKind::CheckFailed);
}

}  // namespace npu_train
