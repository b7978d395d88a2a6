#include "tools/commands/serve/local_request.hpp"

#include "npu_train/core/text.hpp"

namespace npu_train::cli {

bool is_local_host(std::string_view host) {
  const auto name = host.substr(0, host.find(':'));
  if (name.size() < host.size()) {
    const auto port = host.substr(name.size() + 1);
    if (port.empty() || port.find_first_not_of("0123456789") != std::string_view::npos) return false;
  }
  return name == "127.0.0.1" || to_lower(name) == "localhost";
}

bool is_same_key(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < key.size(); ++i)
    difference |=
        static_cast<unsigned>(static_cast<unsigned char>(key[i]) ^ static_cast<unsigned char>(i < given.size() ? given[i] : '\0'));
  return difference == 0 && !key.empty();
}

}  // namespace npu_train::cli
