// Replaces unicode.cpp and regex.cpp in a library without tokenizers, which needs neither utf8proc nor PCRE2.
#include "npu_train/core/error.hpp"
#include "text/regex.hpp"
#include "text/unicode.hpp"

namespace npu_train::detail {

void require_text_libraries(const char* where) {
  throw Error(ErrorKind::Device, where, "an npu_train that was built with NPU_TRAIN_TEXT=OFF cannot read tokenizers",
              "build it with NPU_TRAIN_TEXT=ON");
}

namespace {

// For the functions that cannot be called without a tokenizer.
[[noreturn]] void unreachable() { throw Error(ErrorKind::Internal, "tokenizer", "not built"); }

}  // namespace

std::string normal_form(std::string_view /*text*/, NormalForm /*form*/) { unreachable(); }
size_t behind_grapheme(std::string_view /*text*/, size_t /*at*/) { unreachable(); }
void append_lower(std::string& /*out*/, char32_t /*point*/) { unreachable(); }
bool is_punctuation(char32_t /*c*/) { unreachable(); }
bool is_mark(char32_t /*c*/) { unreachable(); }
bool is_nonspacing_mark(char32_t /*c*/) { unreachable(); }
bool is_number(char32_t /*c*/) { unreachable(); }
bool is_control(char32_t /*c*/) { unreachable(); }

struct Regex::Impl {};
Regex::Regex(const std::string& /*pattern*/, const std::string& /*where*/) { unreachable(); }
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Matches::Impl {};
Matches::Matches(const Regex& /*regex*/, std::string_view /*text*/) { unreachable(); }
Matches::~Matches() = default;
bool Matches::next(Span& /*match*/) { unreachable(); }

}  // namespace npu_train::detail
