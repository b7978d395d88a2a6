/// The one exception of the library. A message says where, what was given, what is allowed and what to do.
#pragma once

#include <c10/util/StringUtil.h>

#include <exception>
#include <stdexcept>
#include <string>

namespace npu_train {

/// What went wrong, by who can mend it. The values are the exit codes of the programs.
enum class ErrorKind : int {
  Internal = 1,     ///< a defect of this library
  Usage = 2,        ///< a call, a command line or a configuration that cannot be meant
  Data = 3,         ///< a data file or sample that cannot be used
  Device = 4,       ///< a device or an environment that is missing or not able
  Diverged = 5,     ///< the training itself: non-finite loss, scale at its floor
  Checkpoint = 6,   ///< a checkpoint or the disk under it
  CheckFailed = 7,  ///< a check was made and failed
  OutOfMemory = 8,  ///< host or device memory
  Peer = 9,         ///< another rank failed
};

/// `[where] message; hint: what to do`. Catch it at the top; `cause()` keeps the exception that started it, where there was one.
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
  std::exception_ptr cause() const noexcept { return cause_; }
  /// The exit code that a program ends with.
  int exit_code() const noexcept { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
  std::string where_;
  std::exception_ptr cause_;
};

/// Throws unless `ok`. The message is built from the remaining arguments, only when it is needed:
/// `check(n > 0, ErrorKind::Usage, "Loader", "batch_size is ", n, "; it must be at least 1")`.
template <class... Parts>
void check(bool ok, ErrorKind kind, const char* where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw Error(kind, where, c10::str(parts...));
}

/// Runs `fn` and turns what c10, the standard library or the operating system throws into an Error (out of memory is told apart).
/// An Error passes unchanged, as does an EarlyEnd. Every public function that calls into libtorch with a user's input goes through this one
/// place.
template <class Fn>
auto translated(const char* where, Fn&& fn) -> decltype(fn());

/// Thrown through a user's function to end it early, by who called it; no error. (A recomputation has all it needs.)
struct EarlyEnd {};

/// The Error for the exception in flight; to be called inside a catch block.
Error translate_current_exception(const std::string& where);

template <class Fn>
auto translated(const char* where, Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const Error&) {
    throw;
  } catch (const EarlyEnd&) {
    throw;
  } catch (...) {
    throw translate_current_exception(where);
  }
}

}  // namespace npu_train
