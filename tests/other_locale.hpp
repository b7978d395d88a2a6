// Locales with another format of numbers, which a program that uses the library may set.
#pragma once

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <string>

#include "environment_variable.hpp"
#include "testing.hpp"

namespace npu_train::testing {

/// In its scope, new C++ streams write 0.5 as "0,5" and 12 as "1.2".
class OtherLocale {
 public:
  OtherLocale() : before_(std::locale::global(std::locale(std::locale(), new Numbers))) {}
  ~OtherLocale() { std::locale::global(before_); }
  OtherLocale(const OtherLocale&) = delete;
  OtherLocale& operator=(const OtherLocale&) = delete;

 private:
  struct Numbers : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\1"; }
  };
  std::locale before_;
};

/// Returns whether this machine can make the locale below: Debian's package locales contains its source.
inline bool has_german_source() { return std::filesystem::exists("/usr/share/i18n/locales/de_DE") && std::getenv("PATH") != nullptr; }

/// In its scope, printf() and strtod() have the decimal comma of de_DE.
class GermanNumbers {
 public:
  GermanNumbers() : folders_("LOCPATH", folder_.path().string()) {
    const auto command = "localedef -i de_DE -f UTF-8 '" + (folder_ / "de_DE.UTF-8").string() + "' > /dev/null 2>&1";
    // Ignores the status, in which localedef also reports warnings.
    [[maybe_unused]] const int status = std::system(command.c_str());
    REQUIRE(std::setlocale(LC_NUMERIC, "de_DE.UTF-8") != nullptr);
  }
  ~GermanNumbers() { std::setlocale(LC_NUMERIC, "C"); }
  GermanNumbers(const GermanNumbers&) = delete;
  GermanNumbers& operator=(const GermanNumbers&) = delete;

 private:
  TempDir folder_;
  EnvironmentVariable folders_;
};

}  // namespace npu_train::testing
