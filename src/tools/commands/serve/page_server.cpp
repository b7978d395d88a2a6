#include "tools/commands/serve/page_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <string_view>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "tools/commands/serve/local_request.hpp"
#include "tools/commands/serve/microhttpd.hpp"

namespace npu_train::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kWhere = "serve";
constexpr unsigned kMostConnections = 64;
constexpr size_t kRequestBytes = 16 << 10;  // memory of a connection, for its request and the header of the answer
constexpr std::chrono::seconds kForRequest{5}, kForAnswer{60};
constexpr const char *kPlain = "text/plain; charset=utf-8", *kHtml = "text/html; charset=utf-8";

// Returns a socket that listens on `port` of 127.0.0.1. If `port` is 0, a free port is chosen and stored in `port`.
int listen_on(int& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const int on = 1;  // a port whose last connections are ending counts as free
  const int out = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool good = out >= 0 && ::setsockopt(out, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 && ::bind(out, any, size) == 0 &&
                    ::listen(out, static_cast<int>(kMostConnections)) == 0 && ::getsockname(out, any, &size) == 0;
  const int code = errno;
  if (!good && out >= 0) ::close(out);
  check(good, ErrorKind::Device, kWhere, "port ", port, " of 127.0.0.1 ",
        code == EADDRINUSE ? "is in use by another program" : str_cat("cannot be used: ", std::strerror(code)),
        "; hint: choose another one with --port, or omit --port to use a free one");
  port = ntohs(address.sin_port);
  return out;
}

struct Server {
  struct Connection {
    int socket = -1;
    Clock::time_point since = Clock::now();
    bool answered = false;
  };

  PageServerOptions options;
  MakeServedPage page;
  MHD_Daemon* daemon = nullptr;
  std::list<Connection> open;

  Server(PageServerOptions given, MakeServedPage make) : options(std::move(given)), page(std::move(make)) {
    check(!options.token.empty(), ErrorKind::Usage, kWhere, "the token is empty");
    const auto& library = microhttpd();
    const int listener = listen_on(options.port);
    daemon = library.start_daemon(MHD_USE_EPOLL, 0, nullptr, nullptr, &Server::on_request, this,  //
                                  MHD_OPTION_LISTEN_SOCKET, listener,                             //
                                  MHD_OPTION_CONNECTION_LIMIT, kMostConnections,                  //
                                  MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytes,              //
                                  MHD_OPTION_NOTIFY_CONNECTION, &Server::on_connection, this,     //
                                  MHD_OPTION_END);
    if (daemon != nullptr) return;
    const auto why = std::string(std::strerror(errno));
    ::close(listener);
    throw Error(ErrorKind::Device, kWhere, "the HTTP server cannot be started: " + why);
  }
  ~Server() { microhttpd().stop_daemon(daemon); }  // closes the listener, too
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Ends connections whose time is over. (MHD_OPTION_CONNECTION_TIMEOUT is not used: it counts from the last byte, so it would end a
  // request whose page takes longer than the timeout to make.)
  void end_late() {
    const auto now = Clock::now();
    for (const auto& connection : open)
      if (now - connection.since > (connection.answered ? kForAnswer : kForRequest)) ::shutdown(connection.socket, SHUT_RDWR);
  }

  static void on_connection(void* self, MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode what) noexcept {
    auto& connections = static_cast<Server*>(self)->open;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      const auto* info = microhttpd().get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
      connections.push_back({.socket = info->connect_fd});
      *context = &connections.back();
    } else {
      connections.remove_if([&](const Connection& one) { return &one == *context; });
    }
  }

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path, const char* method, const char* /*version*/,
                               const char* /*upload*/, size_t* /*upload_size*/, void** /*context*/) noexcept {
    try {
      const auto out = static_cast<Server*>(self)->answer(connection, path, method);
      const auto* info = microhttpd().get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
      auto* const at = info != nullptr ? static_cast<Connection*>(info->socket_context) : nullptr;
      if (at != nullptr) at->since = Clock::now(), at->answered = true;
      return out;
    } catch (...) {  // out of memory
      return MHD_NO;
    }
  }

  // Answers as soon as the header has arrived; the body of a request is never read.
  MHD_Result answer(MHD_Connection* connection, std::string_view path, std::string_view method) const {
    const auto text = [](const char* value) { return std::string_view(value != nullptr ? value : ""); };
    const auto host = text(microhttpd().lookup_connection_value(connection, MHD_HEADER_KIND, "Host"));
    if (!is_local_host(host)) return send(connection, 403, kPlain, "this page is for http://127.0.0.1 and http://localhost only\n");
    if (!is_same_key(text(microhttpd().lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token")), options.token))
      return send(connection, 403, kPlain, "the token is missing or wrong; use the address that npu_tool serve has printed\n");
    if (method != "GET" && method != "HEAD") return send(connection, 405, kPlain, "only GET and HEAD are possible\n");
    if (path != "/") return send(connection, 404, kPlain, "there is one page only: /\n");
    try {
      return send(connection, 200, kHtml, translated(kWhere, page));
    } catch (const Error& e) {
      return send(connection, 503, kPlain, npu_train::detail::visible_lines(e.what()) + "\n");
    }
  }

  MHD_Result send(MHD_Connection* connection, unsigned status, const char* type, const std::string& body) const {
    return send(connection, status, type, std::make_shared<const std::string>(body));
  }

  MHD_Result send(MHD_Connection* connection, unsigned status, const char* type, std::shared_ptr<const std::string> body) const {
    using Body = std::shared_ptr<const std::string>;
    auto* const kept = new Body(std::move(body));  // until the response is destroyed
    auto* const response = microhttpd().create_response((*kept)->size(), const_cast<char*>((*kept)->data()),
                                                        [](void* it) { delete static_cast<Body*>(it); }, kept);
    if (response == nullptr) {
      delete kept;
      return MHD_NO;
    }
    const auto header = [&](const char* name, const std::string& value) {
      microhttpd().add_response_header(response, name, value.c_str());
    };
    header("Content-Type", type);
    header("Connection", "close");
    header("Cache-Control", "no-store");
    header("Referrer-Policy", "no-referrer");
    header("X-Content-Type-Options", "nosniff");
    header("Cross-Origin-Resource-Policy", "same-origin");
    header("Content-Security-Policy", "frame-ancestors 'none'");
    if (status == 405) header("Allow", "GET, HEAD");
    if ((status == 200 || status == 503) && options.refresh > 0) header("Refresh", std::to_string(options.refresh));
    const auto queued = microhttpd().queue_response(connection, status, response);
    microhttpd().destroy_response(response);
    return queued;
  }
};

}  // namespace

void serve_page(PageServerOptions options, MakeServedPage page, const std::function<void(int, const std::string&)>& listening) {
  Server server(std::move(options), std::move(page));
  const auto port = server.options.port;
  listening(port, str_cat("http://127.0.0.1:", port, "/?token=", server.options.token));
  for (;;) {
    constexpr int32_t kMilliseconds = 500;
    const auto begin = Clock::now();
    check(microhttpd().run_wait(server.daemon, kMilliseconds) == MHD_YES, ErrorKind::Internal, kWhere,
          "the HTTP server has failed: ", std::strerror(errno));
    // If a page took long to make, the requests that arrived meanwhile are read first.
    if (Clock::now() - begin < kForRequest / 2) server.end_late();
  }
}

}  // namespace npu_train::cli
