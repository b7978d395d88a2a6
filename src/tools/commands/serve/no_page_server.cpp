// Replaces page_server.cpp in a build without libmicrohttpd.
#include <cstdlib>

#include "npu_train/core/error.hpp"
#include "tools/commands/serve/page_server.hpp"

namespace npu_train::cli {

struct PageServer::Impl {};

PageServer::PageServer(PageServerOptions /*options*/, MakeServedPage /*page*/) {
  throw Error(ErrorKind::Device, "serve", "an npu_train that was built with NPU_TRAIN_SERVE=OFF cannot serve pages",
              "build it with NPU_TRAIN_SERVE=ON; npu_tool report writes the page into a file");
}
PageServer::~PageServer() = default;
int PageServer::port() const { return 0; }
std::string PageServer::url() const { return ""; }
void PageServer::run() { std::abort(); }  // there is no object

}  // namespace npu_train::cli
