#include "text/regex.hpp"

#include <algorithm>
#include <new>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace npu_train::detail {
namespace {

constexpr size_t kLongestPattern = 65536;  // bytes
// Limits of one match. The patterns of published tokenizers need a few steps for each character of a match.
constexpr uint32_t kMostSteps = 20'000'000;
constexpr uint32_t kMostKibibytes = 65536;

std::string message_of(int code) {
  PCRE2_UCHAR text[200] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

template <class T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const { free(object); }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code, pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context, pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context, pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data, pcre2_match_data_free>>;

struct Regex::Impl {
  std::string where;
  Code code;
  MatchContext context;
};

Regex::Regex(const std::string& pattern, const std::string& where) : impl_(std::make_unique<Impl>()) {
  impl_->where = where;
  check(pattern.size() <= kLongestPattern, ErrorKind::Data, "tokenizer", where, ": the pattern has ", pattern.size(),
        " bytes; allowed: ", kLongestPattern);
  const CompileContext compile(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  size_t at = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_MULTILINE, &code, &at, compile.get()));
  check(impl_->code != nullptr, ErrorKind::Data, "tokenizer", where, ": invalid pattern '", visible_start(pattern, 200), "' at byte ", at,
        ": ", message_of(code));
  pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE);  // if JIT is not available, matching is slower
  impl_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(impl_->context.get(), kMostSteps);
  pcre2_set_heap_limit(impl_->context.get(), kMostKibibytes);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Matches::Impl {
  const Regex::Impl& regex;
  std::string_view text;
  MatchData data;
  size_t from = 0, last_end = std::string_view::npos;

  // Returns false if there is no match.
  bool match() {
    const auto run = [&](uint32_t options) {
      return pcre2_match(regex.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options | PCRE2_NO_UTF_CHECK,
                         data.get(), regex.context.get());
    };
    int code = run(0);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) code = run(PCRE2_NO_JIT);
    check(code >= 0 || code == PCRE2_ERROR_NOMATCH, ErrorKind::Data, "tokenizer", regex.where, ": the pattern fails at byte ", from,
          " of a text of ", text.size(), " bytes: ", code < 0 ? message_of(code) : std::string(), "; it backtracks too much for this text");
    return code >= 0;
  }
};

Matches::Matches(const Regex& regex, std::string_view text)
    : impl_(new Impl{*regex.impl_, text, MatchData(pcre2_match_data_create(1, nullptr))}) {}
Matches::~Matches() = default;

bool Matches::next(Span& match) {
  auto& m = *impl_;
  while (m.from <= m.text.size() && m.match()) {
    const auto* found = pcre2_get_ovector_pointer(m.data.get());
    match = {found[0], std::max(found[0], found[1])};
    const bool empty = match.begin == match.end;
    // An empty match directly after the last match does not count.
    const bool counts = !empty || m.last_end != match.end;
    m.from = empty ? (match.end < m.text.size() ? match.end + 1 : m.text.size() + 1) : match.end;
    while (empty && m.from < m.text.size() && (static_cast<unsigned char>(m.text[m.from]) & 0xC0) == 0x80) ++m.from;
    if (!counts) continue;
    m.last_end = match.end;
    return true;
  }
  return false;
}

}  // namespace npu_train::detail
