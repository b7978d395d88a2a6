#include "scan/serves_npu.hpp"

#include <algorithm>

namespace npu_train::detail::scan {
namespace {

bool is_word(std::string_view text, const std::vector<Token>& tokens, size_t i, std::string_view word) {
  return i < tokens.size() && tokens[i].in(text) == word;
}

// torch.npu, torch.accelerator: the token of the last name.
bool of_torch(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  return i >= 2 && is_word(text, tokens, i - 1, ".") && is_word(text, tokens, i - 2, "torch") &&
         (is_word(text, tokens, i, "npu") || is_word(text, tokens, i, "accelerator"));
}

bool uses_npu(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  return tokens[i].kind == TokenKind::Name && (is_word(text, tokens, i, "torch_npu") || of_torch(text, tokens, i));
}

bool names_npu(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  if (tokens[i].kind == TokenKind::Name) return is_word(text, tokens, i, "is_npu") || uses_npu(text, tokens, i);
  if (tokens[i].kind != TokenKind::Text) return false;
  const auto body = tokens[i].body_in(text);
  return body == "npu" || body.starts_with("npu:") || body == "hccl";
}

/// A logical line, with the column that it begins at.
struct Line {
  size_t first = 0, end = 0;  // tokens, without the LineEnd
  size_t indent = 0;
};

class NpuRanges {
 public:
  NpuRanges(std::string_view text, const std::vector<Token>& tokens) : text_(text), tokens_(tokens) {
    seen_.push_back(0);
    for (size_t i = 0; i < tokens_.size(); ++i) seen_.push_back(seen_.back() + (names_npu(text_, tokens_, i) ? 1 : 0));
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const size_t first = i;
      while (i < tokens_.size() && tokens_[i].kind != TokenKind::LineEnd) ++i;
      if (i > first) lines_.push_back({first, i, indent_of(first)});
    }
  }

  std::vector<std::pair<uint32_t, uint32_t>> run() {
    if (seen_.back() == 0) return {};
    for (size_t k = 0; k < lines_.size(); ++k) {
      const auto& line = lines_[k];
      add(k, k + 1);
      if (begins(line, "def") || (begins(line, "async") && is_word(text_, tokens_, line.first + 1, "def"))) add(k, end_of_block(k, false));
      if (line.indent == 0 && !begins(line, "def") && !begins(line, "class") && !begins(line, "async")) add(k, end_of_block(k, true));
    }
    std::sort(out_.begin(), out_.end());
    std::vector<std::pair<uint32_t, uint32_t>> joined;
    for (const auto& range : out_) {
      if (!joined.empty() && range.first <= joined.back().second)
        joined.back().second = std::max(joined.back().second, range.second);
      else
        joined.push_back(range);
    }
    return joined;
  }

 private:
  bool begins(const Line& line, std::string_view word) const { return is_word(text_, tokens_, line.first, word); }

  size_t indent_of(size_t token) const {
    const auto begin = tokens_[token].begin;
    const auto at = begin == 0 ? std::string_view::npos : text_.rfind('\n', begin - 1);
    return begin - (at == std::string_view::npos ? 0 : at + 1);
  }

  // The line behind the block that line `k` begins; `branches`: elif, else, except and finally of it belong to it.
  size_t end_of_block(size_t k, bool branches) const {
    const auto goes_on = [&](const Line& line) {
      if (line.indent > lines_[k].indent) return true;
      return branches && line.indent == lines_[k].indent &&
             (begins(line, "elif") || begins(line, "else") || begins(line, "except") || begins(line, "finally"));
    };
    size_t end = k + 1;
    while (end < lines_.size() && goes_on(lines_[end])) ++end;
    return end;
  }

  void add(size_t from, size_t to) {
    const size_t first = lines_[from].first, end = lines_[to - 1].end;
    if (seen_[end] > seen_[first]) out_.emplace_back(tokens_[first].begin, tokens_[end - 1].end());
  }

  std::string_view text_;
  const std::vector<Token>& tokens_;
  std::vector<size_t> seen_;  // tokens that name an NPU before each
  std::vector<Line> lines_;
  std::vector<std::pair<uint32_t, uint32_t>> out_;
};

}  // namespace

std::vector<std::pair<uint32_t, uint32_t>> npu_ranges(std::string_view text, const std::vector<Token>& tokens) {
  return NpuRanges(text, tokens).run();
}

int64_t first_npu_use(std::string_view text, const std::vector<Token>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (uses_npu(text, tokens, i)) return tokens[i].begin;
  return -1;
}

}  // namespace npu_train::detail::scan
