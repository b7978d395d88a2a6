/// The one exception of the library. A message states the place, the given value, the allowed values and the remedy.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "npu_train/core/str_cat.hpp"

namespace npu_train {

/// The kind of an error, by who can fix it. The values are the exit codes of the programs.
enum class ErrorKind : int {
  Internal = 1,     ///< a defect of this library
  Usage = 2,        ///< a call, a command line or a configuration that is not valid
  Data = 3,         ///< a data file or sample that cannot be used
  Device = 4,       ///< a device or an environment that is missing or unsuitable
  Diverged = 5,     ///< the training itself: non-finite loss, scale at its floor
  Checkpoint = 6,   ///< a checkpoint or the disk under it
  CheckFailed = 7,  ///< a check was made and failed
  OutOfMemory = 8,  ///< host or device memory
  Peer = 9,         ///< another rank failed
};

/// `[where] message; hint: what to do`. Catch it at the top; `cause()` is the exception that caused it, if any.
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
  /// what() without "[where] ".
  std::string message() const { return std::string(what()).substr(where_.size() + 3); }
  std::exception_ptr cause() const noexcept { return cause_; }
  /// The exit code of a program.
  int exit_code() const noexcept { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
  std::string where_;
  std::exception_ptr cause_;
};

/// Throws unless `ok`. The message is built from the remaining arguments, only if it is needed:
/// `check(n > 0, ErrorKind::Usage, "Loader", "batch_size is ", n, "; it must be at least 1")`.
template <class... Parts>
void check(bool ok, ErrorKind kind, const char* where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw Error(kind, where, str_cat(parts...));
}

/// Runs `fn` and translates exceptions of c10, the standard library or the operating system into an Error (out of memory has its own kind).
/// An Error passes unchanged, as does an EarlyEnd. Every public function that calls into libtorch with a user's input uses this single
/// function.
template <class Fn>
auto translated(const char* where, Fn&& fn) -> decltype(fn());

/// The same for code that the program brings: a data set, a callback, a model. An exception about which nothing is known is of the kind
/// `unknown`, and not a defect of this library.
template <class Fn>
auto translated(const char* where, ErrorKind unknown, Fn&& fn) -> decltype(fn());

/// Thrown through a user's function by its caller to end it early; not an error. (A recomputation has all it needs.)
struct EarlyEnd {};

/// The Error for the current exception; call it inside a catch block. `unknown` is the kind of an exception about which nothing is known
/// but its text: a defect of this library, or what code of the program is called for.
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
