/// The only exception type of the library. A message states the place, the given value, the allowed values and the remedy.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "npu_train/core/text.hpp"

namespace npu_train {

/// Kinds of errors, by who can fix them. The values are the exit codes of the programs.
enum class ErrorKind : int {
  Internal = 1,     ///< defect of this library
  Usage = 2,        ///< invalid call, command line or configuration
  Data = 3,         ///< unusable data file or sample
  Device = 4,       ///< missing or unsuitable device or environment
  Diverged = 5,     ///< failure of the training itself: non-finite loss, loss scale at its floor
  Checkpoint = 6,   ///< failure of a checkpoint or of its disk
  CheckFailed = 7,  ///< a requested check failed
  OutOfMemory = 8,  ///< host or device memory is exhausted
  Peer = 9,         ///< another rank failed
};

/// An exception with the text `[where] message; hint: what to do`. `cause()` is the original exception, if any.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& where, const std::string& message, const std::string& hint = "",
        std::exception_ptr cause = nullptr)
      : std::runtime_error("[" + where + "] " + message + (hint.empty() ? "" : "; hint: " + hint)),
        kind_(kind),
        where_(where),
        cause_(std::move(cause)) {}

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& where() const noexcept { return where_; }
  /// Returns what() without "[where] ".
  std::string message() const { return std::string(what()).substr(where_.size() + 3); }
  std::exception_ptr cause() const noexcept { return cause_; }
  /// Exit code for a program that ends with this error.
  int exit_code() const noexcept { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
  std::string where_;
  std::exception_ptr cause_;
};

/// Throws an Error unless `ok`; builds the message from the remaining arguments only then: `check(n > 0, ErrorKind::Usage, "Loader",
/// "batch_size is ", n, "; it must be at least 1")`.
template <class... Parts>
void check(bool ok, ErrorKind kind, const char* where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw Error(kind, where, str_cat(parts...));
}

/// Runs `fn` and translates exceptions of c10, the standard library or the operating system into an Error (with a separate kind for
/// exhausted memory). Error and EarlyEnd pass unchanged. Every public function that calls libtorch with a user's input uses this
/// function.
template <class Fn>
auto translated(const char* where, Fn&& fn) -> decltype(fn());

/// Overload for the user's code: a data set, a callback, a model. An unclassified exception gets the kind `unknown` instead of Internal.
template <class Fn>
auto translated(const char* where, ErrorKind unknown, Fn&& fn) -> decltype(fn());

/// An object that the library throws to end a user's function early, for example when a recomputation is complete. It is thrown in code
/// that the function calls, and is caught by the library code that called the function. Not an error.
struct EarlyEnd {};

/// Translates the current exception; call it in a catch block. `unknown` is the kind of an exception that cannot be classified: Internal,
/// or the kind that fits the called user code.
Error translate_current_exception(const std::string& where, ErrorKind unknown = ErrorKind::Internal);

template <class Fn>
auto translated(const char* where, ErrorKind unknown, Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const Error&) {
    throw;
  } catch (const EarlyEnd&) {
    throw;
  } catch (...) {
    throw translate_current_exception(where, unknown);
  }
}

template <class Fn>
auto translated(const char* where, Fn&& fn) -> decltype(fn()) {
  return translated(where, ErrorKind::Internal, std::forward<Fn>(fn));
}

}  // namespace npu_train
