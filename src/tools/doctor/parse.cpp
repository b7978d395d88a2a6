#include "tools/doctor/parse.hpp"

#include <charconv>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kMostParts = 100'000;
constexpr int kMostNumbers = 65'536;
constexpr std::string_view kBlanks = " \t\r\n";

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (out.size() + 1 < kMostParts) {
    const auto at = text.find(separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  out.emplace_back(text);
  return out;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  while (out.size() < kMostParts) {
    const auto from = text.find_first_not_of(kBlanks);
    if (from == std::string_view::npos) break;
    text.remove_prefix(from);
    const auto to = std::min(text.find_first_of(kBlanks), text.size());
    out.emplace_back(text.substr(0, to));
    text.remove_prefix(to);
  }
  return out;
}

std::string trimmed(std::string_view text) { return std::string(trimmed_view(text)); }

std::optional<std::string> value_of(std::string_view text, std::string_view key, char separator) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto at = line.find(separator);
    if (at == std::string_view::npos || trimmed_view(line.substr(0, at)) != key) continue;
    auto value = trimmed_view(line.substr(at + 1));
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    return std::string(value);
  }
  return std::nullopt;
}

std::optional<int64_t> leading_number(std::string_view text) {
  const auto start = trimmed_view(text);
  int64_t out = 0;
  const auto [end, error] = std::from_chars(start.data(), start.data() + start.size(), out);
  return error == std::errc() ? std::optional(out) : std::nullopt;
}

std::optional<int64_t> whole_number(std::string_view text) { return npu_train::whole_number(trimmed_view(text)); }

std::optional<std::vector<int>> number_list(std::string_view text) {
  std::vector<int> out;
  if (trimmed_view(text).empty()) return out;
  for (const auto& part : split(trimmed_view(text), ',')) {
    const auto dash = part.find('-');
    const auto from = whole_number(part.substr(0, dash));
    const auto to = dash == std::string::npos ? from : whole_number(part.substr(dash + 1));
    if (!from || !to || *from < 0 || *to < *from || *to >= kMostNumbers || out.size() + (*to - *from) > kMostNumbers) return std::nullopt;
    for (auto i = *from; i <= *to; ++i) out.push_back(static_cast<int>(i));
  }
  return out;
}

std::string shortened(std::string_view text, size_t longest) {
  return text.size() <= longest ? std::string(text) : std::string(text.substr(0, longest)) + "...";
}

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
