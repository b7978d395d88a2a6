/// The C locale for calls of other libraries that read or write numbers by the program's locale.
#pragma once

#include <locale.h>

#include <locale>
#include <mutex>
#include <optional>

namespace npu_train {

/// In its scope printf, strtod and their relatives of this thread follow the C locale, whatever setlocale() or std::locale::global() chose;
/// the other threads are not affected. C++ streams do not follow it: see str_cat().
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

/// In its scope new C++ streams of the process write 1003 and 0.5 in this way, whatever std::locale::global() chose; all else that the
/// locale decides stays. One scope at a time: others wait. For calls that have streams of their own, such as libtorch's of a module's text.
class PlainStreams {
 public:
  PlainStreams() : lock_(one_at_a_time()) {
    const auto& numbers = std::use_facet<std::numpunct<char>>(std::locale());
    if (numbers.grouping().empty() && numbers.decimal_point() == '.') return;
    before_ = std::locale::global(std::locale(std::locale(), new std::numpunct<char>));  // it has no name: setlocale() is not called
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
