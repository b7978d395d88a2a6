// Scans CMake files and shell scripts.
#include <algorithm>
#include <set>

#include "npu_train/core/text.hpp"
#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {
namespace {

// Returns "CUDA_LIBRARIES" for "${CUDA_LIBRARIES}".
std::string_view plain_word(std::string_view word) {
  if (word.starts_with("${") && word.ends_with('}')) return word.substr(2, word.size() - 3);
  if (word.starts_with("$ENV{") && word.ends_with('}')) return word.substr(5, word.size() - 6);
  return word;
}

constexpr size_t kLongestCommand = 200;  // longer names of a CMake command are in no table

class CMakeScan : private Tokens {
 public:
  explicit CMakeScan(FileScan& scan) : Tokens(cmake_tokens(scan.text())), scan_(scan), rows_(scan.facts().table("cmake")) {
    knows_npu_ = to_lower(text()).find("torch_npu") != std::string::npos;
  }

  void run() {
    for (size_t i = 0; i + 1 < size(); ++i) {
      if (!is_name(i) || !is(i + 1, "(")) continue;
      size_t end = i + 2;
      for (int depth = 1; end < size() && depth > 0; ++end) depth += is(end, "(") ? 1 : is(end, ")") ? -1 : 0;
      command(i, i + 2, end - 1);
      i = end - 1;
    }
  }

 private:
  std::string_view value(size_t i) const { return is_text(i) ? body(i) : word(i); }

  // Scans a command. It gets at most one finding per rule, because it is one place to work on.
  void command(size_t name, size_t first, size_t end) {
    const auto called = to_lower(word(name).substr(0, kLongestCommand));
    std::set<const Rule*> told;
    const auto* row = rows_.exact(called + " *");
    if (row == nullptr) row = rows_.find(called + " ");
    if (row != nullptr) tell(*row, name, told);
    for (size_t i = first; i < end; ++i)
      if (!is_kind(i, TokenKind::Symbol)) argument(called, i, told);
    const bool names_package = called == "find_package" || called == "fetchcontent_declare" || called == "pkg_check_modules";
    if (names_package && first < end)
      if (const auto* library = scan_.facts().by_cmake(value(first))) scan_.add(*library, begin(first), span(first, first));
  }

  void argument(const std::string& called, size_t i, std::set<const Rule*>& told) {
    const auto given = value(i);
    if (const auto* row = rows_.exact(called + " " + std::string(given))) {
      if (row->rule->id != "cmake-torch" || !knows_npu_) tell(*row, i, told);
      return;
    }
    if (given.find(' ') != std::string_view::npos) return;
    const auto* row = rows_.find("* " + std::string(plain_word(given)));
    if (row == nullptr && given.ends_with(".cu")) row = rows_.exact("* *.cu");
    if (row != nullptr) tell(*row, i, told);
  }

  void tell(const Pattern& row, size_t i, std::set<const Rule*>& told) {
    if (told.insert(row.rule).second) scan_.add(row, begin(i), span(i, i));
  }

  FileScan& scan_;
  const PatternTable& rows_;
  bool knows_npu_ = false;
};

// Whether the token may name an environment variable. The tokenizer has already split "${X:-cuda}" and "$X".
bool is_env(const Token& token, std::string_view next) { return !token.prose || token.formatted || next == "="; }

std::string as_it_is(std::string_view text) { return std::string(text); }

// Decodes Python code in an argument. Between double quotes, the shell removes backslashes.
EmbeddedCode python_of(const Token& token, std::string_view text) {
  EmbeddedCode out;
  const auto body = token.body_in(text);
  for (size_t i = 0; i < body.size(); ++i) {
    const bool escaped =
        token.formatted && body[i] == '\\' && i + 1 < body.size() && std::string_view("\"\\$`").find(body[i + 1]) != std::string_view::npos;
    const size_t at = token.body + i;
    out.add(escaped ? body[++i] : body[i], at, at + (escaped ? 2 : 1));
  }
  return out;
}

}  // namespace

void scan_cmake(FileScan& scan) { CMakeScan(scan).run(); }

void scan_shell(FileScan& scan) {
  const auto text = scan.text();
  const auto tokens = shell_tokens(text);
  const auto& rows = scan.facts().table("shell");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto& token = tokens[i];
    if (token.kind == TokenKind::Text) python_of(token, text).scan_as_python(scan, &as_it_is);
    if (token.kind != TokenKind::Name) continue;
    auto word = token.in(text);
    const auto next = i + 1 < tokens.size() && tokens[i + 1].begin == token.end() ? tokens[i + 1].in(text) : std::string_view();
    if (is_env(token, next)) {
      auto name = word;  // the name in ${NAME:-default} ends at the colon
      if (token.formatted) name = name.substr(0, std::min(name.find(':'), name.find('-')));
      if (scan.add_environment(name, token.begin)) continue;
    }
    if (token.prose || token.formatted) continue;
    // Treats --runtime=nvidia as a single option.
    if (word.starts_with("--") && next == "=" && i + 2 < tokens.size())
      if (const auto* row = rows.find(text.substr(token.begin, tokens[i + 2].end() - token.begin))) {
        scan.add(*row, token.begin, tokens[i + 2].end() - token.begin);
        continue;
      }
    const auto name = word.substr(word.starts_with('/') ? word.rfind('/') + 1 : 0);  // without the folder of /usr/bin/nvidia-smi
    if (const auto* row = rows.find(name)) {
      scan.add(*row, token.end() - static_cast<uint32_t>(name.size()), static_cast<uint32_t>(name.size()));
      continue;
    }
    if (const auto* library = name == "deepspeed" ? scan.facts().by_package(name) : nullptr) {
      scan.add(*library, token.begin, token.length);
      continue;
    }
    scan.add_device_text(word, token.begin);
  }
}

}  // namespace npu_train::detail::scan
