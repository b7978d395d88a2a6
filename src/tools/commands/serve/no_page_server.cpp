// Replaces page_server.cpp in a build without libmicrohttpd.
#include "npu_train/core/error.hpp"
#include "tools/commands/serve/page_server.hpp"

namespace npu_train::cli {

void serve_page(PageServerOptions /*options*/, MakeServedPage /*page*/, const std::function<void(int, const std::string&)>& /*listening*/) {
  throw Error(ErrorKind::Device, "serve", "an npu_train that was built with NPU_TRAIN_SERVE=OFF cannot serve pages",
              "build it with NPU_TRAIN_SERVE=ON; npu_tool report writes the page into a file");
}

}  // namespace npu_train::cli
