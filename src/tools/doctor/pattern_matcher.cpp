#include "tools/doctor/pattern_matcher.hpp"

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kMostStates = 65'535, kColumns = 128;

}  // namespace

PatternMatcher::PatternMatcher(const std::vector<std::string>& patterns) {
  uint8_t columns = 1;
  const auto add_state = [&] {
    check(next_.size() < kMostStates, ErrorKind::Internal, "PatternMatcher", "more than ", kMostStates, " bytes of patterns");
    next_.push_back({});
    here_.emplace_back();
    return static_cast<uint16_t>(next_.size() - 1);
  };
  add_state();
  for (size_t p = 0; p < patterns.size(); ++p) {
    check(!patterns[p].empty(), ErrorKind::Internal, "PatternMatcher", "an empty pattern");
    uint16_t state = 0;
    for (const unsigned char c : patterns[p]) {
      if (column_[c] == 0) {
        check(columns < kColumns, ErrorKind::Internal, "PatternMatcher", "patterns of more than ", kColumns - 1, " different bytes");
        column_[c] = columns++;
      }
      if (next_[state][column_[c]] == 0) {
        const auto added = add_state();
        next_[state][column_[c]] = added;
      }
      state = next_[state][column_[c]];
    }
    here_[state].push_back(p);
    lengths_.push_back(patterns[p].size());
  }
  for (size_t c = 'A'; c <= 'Z'; ++c) column_[c] = column_[c - 'A' + 'a'];
  link_states();
}

void PatternMatcher::link_states() {
  stops_.resize(next_.size());
  shorter_.resize(next_.size());
  std::vector<uint16_t> fail(next_.size()), queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {  // breadth first: a state's fallback state is nearer to the root and already finished
    const auto state = queue[i];
    shorter_[state] = here_[fail[state]].empty() ? shorter_[fail[state]] : fail[state];
    stops_[state] = !here_[state].empty() || shorter_[state] != 0 ? 1 : 0;
    for (size_t c = 0; c < kColumns; ++c) {
      const auto child = next_[state][c];
      if (child == 0) {
        next_[state][c] = state == 0 ? 0 : next_[fail[state]][c];
      } else {
        fail[child] = state == 0 ? 0 : next_[fail[state]][c];
        queue.push_back(child);
      }
    }
  }
}

}  // namespace npu_train::detail
