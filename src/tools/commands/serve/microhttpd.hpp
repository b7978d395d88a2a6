// libmicrohttpd, which is loaded when the first server starts. Other commands do not need it, and do not start more slowly because of it.
#pragma once

#include <microhttpd.h>

namespace npu_train::cli {

struct Microhttpd {
  decltype(&::MHD_start_daemon) start_daemon;
  decltype(&::MHD_stop_daemon) stop_daemon;
  decltype(&::MHD_run_wait) run_wait;
  decltype(&::MHD_get_connection_info) get_connection_info;
  decltype(&::MHD_lookup_connection_value) lookup_connection_value;
  decltype(&::MHD_create_response_from_buffer_with_free_callback_cls) create_response;
  decltype(&::MHD_add_response_header) add_response_header;
  decltype(&::MHD_queue_response) queue_response;
  decltype(&::MHD_destroy_response) destroy_response;
};

/// Loads the library if it is not loaded. Error(Device) if it is not installed.
const Microhttpd& microhttpd();

}  // namespace npu_train::cli
