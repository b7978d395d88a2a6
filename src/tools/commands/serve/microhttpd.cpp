#include "tools/commands/serve/microhttpd.hpp"

#include <dlfcn.h>

#include "npu_train/core/error.hpp"

namespace npu_train::cli {
namespace {

constexpr const char* kFile = "libmicrohttpd.so.12";

Microhttpd load_microhttpd() {
  void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, ErrorKind::Device, "serve", kFile, " cannot be loaded: ", ::dlerror(),
        "; hint: install it (libmicrohttpd12 on Debian); npu_tool report writes the page into a file");
  Microhttpd out{};
  const auto get = [&]<class Fn>(const char* name, Fn*& found) {
    found = reinterpret_cast<Fn*>(::dlsym(library, name));
    check(found != nullptr, ErrorKind::Device, "serve", kFile, " has no ", name, "; hint: install libmicrohttpd 0.9.75 or later");
  };
  get("MHD_start_daemon", out.start_daemon);
  get("MHD_stop_daemon", out.stop_daemon);
  get("MHD_run_wait", out.run_wait);
  get("MHD_get_connection_info", out.get_connection_info);
  get("MHD_lookup_connection_value", out.lookup_connection_value);
  get("MHD_create_response_from_buffer_with_free_callback_cls", out.create_response);
  get("MHD_add_response_header", out.add_response_header);
  get("MHD_queue_response", out.queue_response);
  get("MHD_destroy_response", out.destroy_response);
  return out;
}

}  // namespace

const Microhttpd& microhttpd() {
  static const auto library = load_microhttpd();
  return library;
}

}  // namespace npu_train::cli
