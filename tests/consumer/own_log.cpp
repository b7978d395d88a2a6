// A program that logs with spdlog: the library's messages reach its logger, and a file that the library writes next to it.
#include <npu_train/trainer.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "own_spdlog.hpp"

namespace {

std::string text_of(const char* file) {
  std::stringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

}  // namespace

int main() {
  npu_train::set_log_sink([](npu_train::LogLevel level, std::string_view message) {
    write_with_spdlog("program.log", static_cast<int>(level), std::string(message));
  });
  {
    const npu_train::ScopedLogTee file(npu_train::make_file_sink("library.log"));
    npu_train::log_warning("half is ", formatted_with_fmt(0.5));
  }
  const auto program = text_of("program.log"), library = text_of("library.log");
  std::printf("%s%s", program.c_str(), library.c_str());
  const bool dated = library.size() == 24 + std::string("warning: half is 0.500\n").size();
  return program == "[warning] half is 0.500\n" && dated && library.find("warning: half is 0.500\n") == 24 ? 0 : 1;
}
