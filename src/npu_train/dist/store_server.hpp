/// Serves the key-value store through which the ranks of a run find each other, from a process that is not a rank.
#pragma once

namespace npu_train {

/// Serves a c10d::TCPStore on a bound, listening TCP socket, and takes ownership of it. Never returns: the process ends by a signal.
/// Error(Device) if the store cannot be served.
[[noreturn]] void serve_store(int listen_fd);

}  // namespace npu_train
