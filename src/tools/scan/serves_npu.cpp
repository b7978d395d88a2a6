#include "tools/scan/serves_npu.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

namespace npu_train::detail::scan {
namespace {

bool is_word(std::string_view text, const std::vector<Token>& tokens, size_t i, std::string_view word) {
  return i < tokens.size() && tokens[i].in(text) == word;
}

// Recognises torch.npu and torch.accelerator, at the token of the last name.
bool of_torch(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  return i >= 2 && is_word(text, tokens, i - 1, ".") && is_word(text, tokens, i - 2, "torch") &&
         (is_word(text, tokens, i, "npu") || is_word(text, tokens, i, "accelerator"));
}

bool uses_npu(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  return tokens[i].kind == TokenKind::Name && (is_word(text, tokens, i, "torch_npu") || of_torch(text, tokens, i));
}

// Returns the position of the part "npu" in is_npu_available or MULTI_NPU; npos if there is none.
size_t npu_part(std::string_view name) {
  for (size_t at = 0; at + 3 <= name.size(); ++at) {
    const bool begins = at == 0 || name[at - 1] == '_', ends = at + 3 == name.size() || name[at + 3] == '_';
    if (begins && ends && (name[at] | 0x20) == 'n' && (name[at + 1] | 0x20) == 'p' && (name[at + 2] | 0x20) == 'u') return at;
  }
  return std::string_view::npos;
}

// Recognises `getattr(torch, device.type, torch.cuda)`: any device, and CUDA only if torch has no module of that name.
bool is_default_module(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  constexpr size_t kFarthest = 16;
  if (i < 3 || !is_word(text, tokens, i, "cuda") || !is_word(text, tokens, i + 1, ")") || !is_word(text, tokens, i - 1, ".") ||
      !is_word(text, tokens, i - 2, "torch") || !is_word(text, tokens, i - 3, ","))
    return false;
  for (size_t at = i - 3; at >= 3 && i - at < kFarthest; --at)
    if (is_word(text, tokens, at, ",") && is_word(text, tokens, at - 1, "torch") && is_word(text, tokens, at - 2, "(") &&
        is_word(text, tokens, at - 3, "getattr"))
      return at < i - 3;
  return false;
}

bool names_npu(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  if (tokens[i].kind == TokenKind::Name)
    return npu_part(tokens[i].in(text)) != std::string_view::npos || of_torch(text, tokens, i) || is_default_module(text, tokens, i);
  if (tokens[i].kind != TokenKind::Text) return false;
  const auto body = tokens[i].body_in(text);
  return body == "npu" || body.starts_with("npu:") || body == "hccl";
}

bool names_variable(std::string_view text, const std::vector<Token>& tokens, size_t i) {
  return tokens[i].kind == TokenKind::Text && tokens[i].body_in(text) == "ASCEND_RT_VISIBLE_DEVICES";
}

using Names = bool (*)(std::string_view text, const std::vector<Token>& tokens, size_t i);

/// A logical line and its indentation.
struct Line {
  size_t first = 0, end = 0;  // tokens, without the LineEnd
  size_t indent = 0;
};

class NpuRanges {
 public:
  NpuRanges(std::string_view text, const std::vector<Token>& tokens, Names names) : text_(text), tokens_(tokens) {
    seen_.push_back(0);
    for (size_t i = 0; i < tokens_.size(); ++i) seen_.push_back(seen_.back() + (names(text_, tokens_, i) ? 1 : 0));
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const size_t first = i;
      while (i < tokens_.size() && tokens_[i].kind != TokenKind::LineEnd) ++i;
      if (i > first) lines_.push_back({first, i, indent_of(first)});
    }
    for (const auto& line : lines_) {
      auto name = std::string(name_of_function(line));
      if (const auto at = npu_part(name); at != std::string::npos) counterparts_.insert(name.replace(at, 3, "cuda"));
    }
  }

  std::vector<std::pair<uint32_t, uint32_t>> run() {
    if (seen_.back() == 0) return {};
    size_t branches_end = 0;  // end of the last top-level statement, whose branches are not separate statements
    for (size_t k = 0; k < lines_.size(); ++k) {
      const auto& line = lines_[k];
      add(k, k + 1);
      if (const auto name = name_of_function(line); !name.empty()) {
        const auto end = end_of_block(k, false);
        counterparts_.contains(name) ? leave(k, end) : add(k, end);
      } else if (begins(line, "class")) {
        add_members(k);
      } else if (line.indent == 0 && k >= branches_end && !begins(line, "async")) {
        branches_end = end_of_block(k, true);
        add(k, branches_end);
      }
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

  // Returns "f" for `def f(`; otherwise an empty text.
  std::string_view name_of_function(const Line& line) const {
    const size_t def = line.first + (begins(line, "async") ? 1 : 0);
    return is_word(text_, tokens_, def, "def") && def + 1 < line.end ? tokens_[def + 1].in(text_) : std::string_view();
  }

  // Handles classes with `CUDA = "cuda"` and `NPU = "npu"`: adds the statements of a class if one of them names an NPU.
  void add_members(size_t k) {
    const size_t end = end_of_block(k, false);
    bool named = false;
    std::vector<size_t> members;
    for (size_t i = k + 1; i < end; ++i) {
      if (lines_[i].indent != lines_[k + 1].indent || !name_of_function(lines_[i]).empty() || begins(lines_[i], "class")) continue;
      members.push_back(i);
      named = named || names_it(i, i + 1);
    }
    if (!named) return;
    for (const auto i : members) leave(i, i + 1);
  }

  size_t indent_of(size_t token) const {
    const auto begin = tokens_[token].begin;
    const auto at = begin == 0 ? std::string_view::npos : text_.rfind('\n', begin - 1);
    return begin - (at == std::string_view::npos ? 0 : at + 1);
  }

  // Returns the line after the block that begins at line `k`; `branches`: including its elif, else, except and finally.
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

  bool names_it(size_t from, size_t to) const { return seen_[lines_[to - 1].end] > seen_[lines_[from].first]; }

  void leave(size_t from, size_t to) { out_.emplace_back(tokens_[lines_[from].first].begin, tokens_[lines_[to - 1].end - 1].end()); }

  void add(size_t from, size_t to) {
    if (names_it(from, to)) leave(from, to);
  }

  std::string_view text_;
  const std::vector<Token>& tokens_;
  std::vector<size_t> seen_;  // number of tokens before each position that name an NPU
  std::vector<Line> lines_;
  std::set<std::string, std::less<>> counterparts_;  // functions such as is_cuda_available, if is_npu_available is also defined
  std::vector<std::pair<uint32_t, uint32_t>> out_;
};

}  // namespace

std::vector<std::pair<uint32_t, uint32_t>> npu_ranges(std::string_view text, const std::vector<Token>& tokens) {
  return NpuRanges(text, tokens, &names_npu).run();
}

std::vector<std::pair<uint32_t, uint32_t>> variable_ranges(std::string_view text, const std::vector<Token>& tokens) {
  return NpuRanges(text, tokens, &names_variable).run();
}

int64_t first_npu_use(std::string_view text, const std::vector<Token>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (uses_npu(text, tokens, i)) return tokens[i].begin;
  return -1;
}

}  // namespace npu_train::detail::scan
