/// The C locale, for other libraries whose functions read or write numbers in the program's locale.
#pragma once

#include <locale.h>

#include <locale>
#include <mutex>
#include <optional>

namespace npu_train {

/// In its scope, printf, strtod and related functions follow the C locale on this thread, whatever setlocale() or std::locale::global()
/// set. Other threads and C++ streams are not affected; for streams see str_cat().
class CLocale {
 public:
  CLocale() : before_(::uselocale(locale())) {}
  ~CLocale() { ::uselocale(before_); }
  CLocale(const CLocale&) = delete;
  CLocale& operator=(const CLocale&) = delete;

 private:
  static locale_t locale() {
    static const locale_t c = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return c;
  }
  locale_t before_;
};

/// In its scope, new C++ streams of the process format numbers as 1003 and 0.5, whatever std::locale::global() set; other facets of the
/// locale stay. Scopes exclude each other: a second thread waits. For calls that create their own streams, such as libtorch's printing of a
/// module.
class PlainStreams {
 public:
  PlainStreams() : lock_(one_at_a_time()) {
    const auto& numbers = std::use_facet<std::numpunct<char>>(std::locale());
    if (numbers.grouping().empty() && numbers.decimal_point() == '.') return;
    before_ = std::locale::global(
        std::locale(std::locale(), new std::numpunct<char>));  // the new locale has no name, so this does not call setlocale()
  }
  ~PlainStreams() {
    if (before_) std::locale::global(*before_);
  }
  PlainStreams(const PlainStreams&) = delete;
  PlainStreams& operator=(const PlainStreams&) = delete;

 private:
  static std::mutex& one_at_a_time() {
    static std::mutex mutex;
    return mutex;
  }
  std::lock_guard<std::mutex> lock_;
  std::optional<std::locale> before_;
};

}  // namespace npu_train
