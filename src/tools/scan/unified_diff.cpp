#include "tools/scan/unified_diff.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"

namespace npu_train::detail::scan {
namespace {

constexpr size_t kContext = 3;

std::vector<std::string_view> lines_with_ends(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    const size_t stop = end == std::string_view::npos ? text.size() : end + 1;
    out.push_back(text.substr(begin, stop - begin));
    begin = stop;
  }
  return out;
}

void put_lines(char mark, std::string_view text, std::string& out) {
  for (const auto line : lines_with_ends(text)) {
    out += mark;
    out += line;
    if (!line.ends_with('\n')) out += "\n\\ No newline at end of file\n";
  }
}

// Writes names like git: one with blanks ends in a tab; one with quotes, controls or bytes beyond ASCII is a C string.
std::string shown_name(const std::string& side, const std::string& path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
  if (plain) return side + path + (path.find(' ') == std::string::npos ? "" : "\t");
  std::string out = "\"" + side;
  for (const char c : path) {
    if (c >= 0x20 && c < 0x7F) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
      continue;
    }
    out += printed("\\%03o", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out + "\"";
}

std::string range(size_t first, size_t count) {
  // An empty range is given by the line before it.
  return std::to_string(count == 0 ? first : first + 1) + (count == 1 ? "" : "," + std::to_string(count));
}

}  // namespace

std::vector<ChangedLine> changed_lines(std::string_view text, const std::vector<Hit>& hits) {
  const auto end_of = [&](size_t at) {
    const auto end = text.find('\n', at);
    return end == std::string_view::npos ? text.size() : end + 1;
  };
  std::vector<ChangedLine> out;
  size_t line = 0, begin = 0, end = end_of(0);
  size_t done = 0;    // up to where the current line was copied
  bool open = false;  // whether a line is being changed
  const auto close = [&] {
    if (open) out.back().after += text.substr(done, end - done);
    open = false;
  };
  for (const auto& hit : hits)
    for (const auto& edit : hit.edits) {
      while (edit.begin >= end && end < text.size()) {
        close();
        begin = end;
        end = end_of(begin);
        ++line;
      }
      if (!open) {
        out.push_back({line, text.substr(begin, end - begin), ""});
        done = begin;
        open = true;
      }
      out.back().after += text.substr(done, edit.begin - done);
      out.back().after += edit.text;
      done = edit.begin + edit.length;
    }
  close();
  return out;
}

std::string unified_diff(const std::string& path, std::string_view text, const std::vector<ChangedLine>& changes) {
  if (changes.empty()) return "";
  const auto lines = lines_with_ends(text);
  std::string out = "--- " + shown_name("a/", path) + "\n+++ " + shown_name("b/", path) + "\n";
  size_t added = 0;  // lines that the previous hunks have added
  for (size_t i = 0; i < changes.size();) {
    const size_t first = changes[i].line - std::min(changes[i].line, kContext);
    size_t stop = i, last = first;
    for (; stop < changes.size() && (stop == i || changes[stop].line <= last + kContext); ++stop)
      last = std::min(lines.size(), changes[stop].line + 1 + kContext);
    std::string body;
    size_t at = first, new_count = 0;
    for (size_t k = i; k < stop; ++k) {
      for (; at < changes[k].line; ++at, ++new_count) put_lines(' ', lines[at], body);
      put_lines('-', changes[k].before, body);
      put_lines('+', changes[k].after, body);
      new_count += lines_with_ends(changes[k].after).size();
      ++at;
    }
    for (; at < last; ++at, ++new_count) put_lines(' ', lines[at], body);
    out += "@@ -" + range(first, last - first) + " +" + range(first + added, new_count) + " @@\n" + body;
    added += new_count - (last - first);
    i = stop;
  }
  return out;
}

}  // namespace npu_train::detail::scan
