/// Formats text for messages: lists, values of any origin, commands and wrapped lines. Translates the names that other programs use for our
/// keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {

/// Joins at most `most` names and adds the number of the others: "a, b, c", "a, b, and 3 more".
inline std::string first_few(const std::vector<std::string>& names, size_t most) {
  if (names.size() <= most) return join(names);
  const std::vector<std::string> shown(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(most));
  return join(shown) + ", and " + std::to_string(names.size() - most) + " more";
}

/// Returns the text without surrounding blanks and line ends.
inline std::string_view trimmed_view(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// Returns the first line that is not blank, without surrounding blanks.
inline std::string first_line(std::string_view text) {
  text = trimmed_view(text);
  return std::string(trimmed_view(text.substr(0, text.find('\n'))));
}

/// Returns UTF-8 in which characters that affect a terminal or the order of letters are escaped ("\x1b", "\u202e"): control characters
/// including line ends, text direction marks, invisible letters and bytes that are not UTF-8.
std::string visible_text(std::string_view text);

/// Applies visible_text(), but keeps line ends and tabs. For complete messages and reports on a terminal.
std::string visible_lines(std::string_view text);

/// Applies visible_text() to at most `longest` code points (each byte that is not UTF-8 counts as one); "..." marks omitted text.
std::string visible_start(std::string_view text, size_t longest);

/// Returns valid UTF-8 of at most `longest` (at least 4) code points, with the middle replaced by "...".
std::string shorten_middle(const std::string& text, size_t longest);

/// Number of code points; each byte that is not UTF-8 counts as one.
size_t code_points(std::string_view text);

/// Returns the byte offset after the first `points` code points, counted as by code_points(); at most the size of the text.
size_t byte_of_point(std::string_view text, size_t points);

}  // namespace npu_train::detail

namespace npu_train {

/// Returns `text` as one word of a POSIX shell, quoted if necessary.
inline std::string shell_word(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Returns the words as a command of a POSIX shell.
inline std::string shell_words(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

/// Returns the text of Error::what() without the hint at its end.
inline std::string without_hint(const std::string& message) { return message.substr(0, message.find("; hint: ")); }

/// Breaks `text` at blanks into lines of at most `width` columns (0: one line), each with a line end. `first` precedes the first line and
/// `rest` the others. Longer words are not broken, so that paths can be copied. Control characters of `text` are escaped.
std::string wrapped(const std::string& text, const std::string& first, const std::string& rest, size_t width);

/// Wraps a line that has a layout of its own: keeps inner blanks, and indents continuation lines to the text after the line's first gap of
/// two or more blanks.
std::string wrapped_line(const std::string& line, size_t width);

/// Applies wrapped_line() to each line of `text`.
std::string wrapped_lines(const std::string& text, size_t width);

/// Returns the full keys for a name that Lightning, timm, torchvision, transformers or torch uses: "optimizer.lr" for "learning_rate". Also
/// finds some of our own keys by name: "trainer.max_epochs" for "max_epochs". Case is ignored, and '-' equals '_'. Empty for an unknown
/// name.
std::vector<std::string> keys_called(std::string_view name);

}  // namespace npu_train
