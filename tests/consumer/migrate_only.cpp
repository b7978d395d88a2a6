// Uses only npu_train::migrate: scans a project, and writes a copy for NPUs.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <npu_train/core/error.hpp>
#include <npu_train/tools/scan/rewrite.hpp>

int main() try {
  std::filesystem::create_directories("project");
  std::ofstream("project/train.py") << "import torch\nmodel = torch.nn.Linear(2, 2).to('cuda')\n";
  std::filesystem::remove_all("ported");
  const auto rewrite = npu_train::rewrite_source("project", "ported");
  std::string text;
  std::getline(std::ifstream("ported/train.py") >> std::ws, text, '\0');
  std::printf("%lld changes:\n%s", static_cast<long long>(rewrite.changes), text.c_str());
  return text.find(".to('npu')") != std::string::npos ? 0 : 1;
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
