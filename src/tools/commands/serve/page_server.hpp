// Serves a page to the browsers of this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace npu_train::cli {

struct PageServerOptions {
  int port = 0;          ///< 0: any free port
  int64_t refresh = 10;  ///< seconds after which a browser loads the page again; 0: never
  std::string token{};   ///< each request must have it: /?token=...
};

/// Returns the page; called for each request. An Error is shown in place of the page.
using MakeServedPage = std::function<std::shared_ptr<const std::string>()>;

/// Runs an HTTP server on 127.0.0.1 with a single page until the process ends. The server reads no file, and answers only GET and HEAD of
/// `/`. Requests without the token, or with a Host other than 127.0.0.1 and localhost, get status 403. One thread serves all connections,
/// of which there are at most 64. A connection has 5 seconds for its request (at most 16 KiB) and 60 for the answer, so that slow or silent
/// clients do not block other clients for longer. `listening` is called with the port and "http://127.0.0.1:8008/?token=..." when the
/// server accepts requests. Error(Device) if the port is in use or not permitted, and without libmicrohttpd (NPU_TRAIN_SERVE).
[[noreturn]] void serve_page(PageServerOptions options, MakeServedPage page,
                             const std::function<void(int port, const std::string& url)>& listening);

}  // namespace npu_train::cli
