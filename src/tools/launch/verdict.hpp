// Derives the result of a run from the ends of its ranks.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// The end of one rank.
struct RankEnd {
  int rank = 0;
  bool signalled = false;  ///< ended by a signal; otherwise it exited
  int status = 0;          ///< number of the signal, or exit code
};

class Verdict {
 public:
  Verdict(int nproc, std::string host) : nproc_(nproc), host_(std::move(host)) {}

  /// Records that the user stops the run and that `signal` is passed on to the ranks.
  void stopped_by(int signal) { stop_ = signal; }
  /// Records that the launcher sends `signal` to ranks that do not end by themselves. An end by this signal is not a failure.
  void ended_by(int signal) { ours_.insert(signal); }

  /// Adds the end of a rank. Call it in the order in which the ranks end.
  void add(const RankEnd& end);
  void add_store(const RankEnd& end);
  /// Records that the launcher kills a stopped rank, for which others have waited in vain. May be called again before the rank ends.
  void add_stopped(int rank);

  /// Whether a rank ended with a failure, so that the others cannot continue.
  bool failed() const { return failed_; }
  int exit_code() const;
  /// Returns the rank, the host and the cause of a failure; "" if there is none.
  std::string message() const;
  /// Whether ranks failed only because of another rank, which did not end by itself.
  bool hung() const { return failed_ && stop_ == 0 && causes_.size() == stopped_.size(); }
  /// Number of ranks that failed by themselves, not because of another rank.
  int lost() const { return static_cast<int>(causes_.size()); }
  bool may_restart() const;

 private:
  struct Cause {
    std::string text;
    int code;
  };

  std::string name(int rank) const;

  int nproc_;
  std::string host_;
  int stop_ = 0;
  std::set<int> ours_, stopped_;
  bool failed_ = false, store_ended_ = false;
  std::vector<Cause> causes_;
  std::string first_victim_;
};

}  // namespace npu_train
