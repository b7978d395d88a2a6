// Regular expressions on UTF-8, by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

struct Span {
  size_t begin = 0, end = 0;
};

/// A compiled pattern; const functions may be called from several threads.
class Regex {
 public:
  /// Compiles a pattern in PCRE2's syntax. Error(Data) with the name `where` if the pattern is invalid or too long.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

 private:
  friend class Matches;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The successive matches in a text of valid UTF-8. They do not overlap.
class Matches {
 public:
  Matches(const Regex& regex, std::string_view text);
  ~Matches();
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;

  /// Finds the next match. Returns false if there is none. Error(Data) if the pattern needs too much time or memory for this text.
  bool next(Span& match);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Translates a pattern of tokenizer.json from Oniguruma's syntax to PCRE2's. Error(Data) with the name `where` for a construct that has
/// another meaning in PCRE2, or that is not supported here.
std::string pcre_pattern(std::string_view onig, const std::string& where);

/// Returns a pattern that matches exactly this text.
std::string quoted_pattern(std::string_view text);

// The pattern of a normalizer, pre-tokenizer or decoder: {"String": "..."} or {"Regex": "..."}.

/// Reads a pattern of this form. Error(Data) with the name `where` for an object of another form, and for a pattern that is not supported.
Regex read_pattern(const Json& json, const std::string& where);

/// Largest text in bytes. Without a limit, several steps that each double a text would fill any memory. check_text_size() throws
/// Error(Data) for a larger text.
inline constexpr size_t kLargestText = size_t{256} << 20;
void check_text_size(size_t bytes);

/// Returns the text with `content` in the place of each match.
std::string replaced(std::string_view text, const Regex& pattern, std::string_view content);

}  // namespace npu_train::detail
