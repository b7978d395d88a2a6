#include "testing.hpp"

#include "tools/doctor/elf.hpp"

#include <random>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::read_elf;

namespace {

std::optional<npu_train::detail::ElfFacts> elf_of(const std::string& bytes, std::string& why) {
  static const TempDir dir;
  std::ofstream(dir / "x.so", std::ios::binary) << bytes;
  return read_elf(dir / "x.so", why);
}

}  // namespace

TEST_CASE("the needed libraries and search paths of a library") {
  std::string why;
  const auto facts = elf_of(FakeLibrary{{"liba.so", "libb.so.2"}, "$ORIGIN:/x", "/old"}.bytes(), why);
  REQUIRE(facts);
  CHECK((facts->needed == std::vector<std::string>{"liba.so", "libb.so.2"}));
  CHECK((facts->runpath == std::vector<std::string>{"$ORIGIN", "/x"}));
  CHECK((facts->rpath == std::vector<std::string>{"/old"}));
  CHECK(facts->machine_name() == "aarch64");
  CHECK(facts->cxx11_names);
  CHECK(!elf_of(FakeLibrary{.needed = {}, .names = "Ss"}.bytes(), why)->cxx11_names);
}

TEST_CASE("the program itself") {
  std::string why;
  const auto facts = read_elf("/proc/self/exe", why);
  REQUIRE_MESSAGE(facts, why);
  CHECK(std::any_of(facts->needed.begin(), facts->needed.end(), [](const auto& n) { return n.starts_with("libc.so"); }));
  CHECK(facts->cxx11_names);
}

TEST_CASE("a name across the border of two blocks is seen") {
  std::string why;
  for (const size_t before : {(size_t{1} << 20) - 4, (size_t{1} << 20) - 1, size_t{1} << 20}) {
    const auto facts = elf_of(FakeLibrary{.needed = {}, .names = std::string(before, 'x') + "__cxx11"}.bytes(), why);
    REQUIRE(facts);
    CHECK(facts->cxx11_names);
  }
}

TEST_CASE("files that are no such libraries") {
  std::string why;
  CHECK(!read_elf("/no/such/file", why));
  CHECK(has(why, "/no/such/file"));
  CHECK(!elf_of("", why));
  CHECK(!elf_of("text", why));
  CHECK(!elf_of(std::string(100, 'x'), why));
  CHECK(has(why, "not an ELF file"));
  const auto whole = FakeLibrary{{"liba.so"}}.bytes();
  CHECK(elf_of(whole + "more", why));
  CHECK(!elf_of(whole.substr(0, whole.size() - 1), why));
  CHECK(has(why, "truncated: " + std::to_string(whole.size() - 1) + " bytes"));
  auto bytes = FakeLibrary{{"a"}}.bytes();
  bytes[EI_CLASS] = ELFCLASS32;
  CHECK(!elf_of(bytes, why));
  CHECK(has(why, "64-bit"));
}

TEST_CASE("every truncation and many damages end in an answer or a reason") {
  const auto good = FakeLibrary{{"liba.so", "libb.so"}, "/x", "/y"}.bytes();
  std::string why;
  for (size_t n = 0; n < good.size(); ++n) {
    why.clear();
    if (!elf_of(good.substr(0, n), why)) CHECK(!why.empty());
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    auto bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random() % 4 == 0 ? 0xFF : random());
    why.clear();
    const auto facts = elf_of(bad, why);
    CHECK((facts.has_value() || !why.empty()));
    if (facts) CHECK(facts->needed.size() <= 256);
  }
}
