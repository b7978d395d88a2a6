#include "testing.hpp"

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Finding disk(const Machine& m, const std::string& name, const std::string& folder = "/srv/runs") {
  return finding_of(check_disk(m.host.view(), folder, 1 << 20), name);
}

}  // namespace

TEST_CASE("free space and speed of a folder that does not exist yet; no file remains") {
  Machine m;
  make_laptop(m);
  CHECK(not_ok(check_disk(m.host.view(), "/srv/runs/a/b", 1 << 20)).find("FAIL") == std::string::npos);
  CHECK(has(disk(m, "space").evidence, "statvfs of /srv:"));
  CHECK(has(disk(m, "write speed").finding, "MB/s"));
  CHECK(std::filesystem::is_empty(m.host.root() / "srv"));
}

TEST_CASE("a disk that is nearly full") {
  Machine m;
  make_laptop(m);
  m.host.disk = {100 * kGiB, 3 * kGiB, 1000000};
  CHECK((disk(m, "space").verdict == Verdict::Warn));
  m.host.disk = {100 * kGiB, kGiB / 8, 1000000};
  CHECK((disk(m, "space").verdict == Verdict::Fail));
  CHECK(has(disk(m, "space").fix, "save_top_k"));
  m.host.disk = {100 * kGiB, 50 * kGiB, 10};
  CHECK((disk(m, "space").verdict == Verdict::Fail));
  CHECK(has(disk(m, "space").finding, "inodes"));
  m.host.disk = {100 * kGiB, 1 << 20, 1000000};
  CHECK((disk(m, "write speed").verdict == Verdict::NotHere));
}

TEST_CASE("kinds of file systems") {
  Machine m;
  make_laptop(m);
  CHECK(disk(m, "file system").finding == "ext4");
  const auto with = [&](const std::string& line) {
    m.host.write("/proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n" + line + "\n/dev/sdb / x ro 0\n");
    return disk(m, "file system");
  };
  CHECK((with("tmpfs /srv tmpfs rw,nosuid 0 0").verdict == Verdict::Warn));
  CHECK((with("/dev/sdc /srv xfs ro,relatime 0 0").verdict == Verdict::Fail));
  CHECK(has(with("/dev/sdc /srv xfs ro,relatime 0 0").finding, "read-only"));
  CHECK(has(with("overlay /srv overlay rw 0 0").finding, "container"));
  CHECK(has(with("/dev/sdc /sr xfs ro 0 0").evidence, "/ is"));  // /sr is no parent folder of /srv
  m.host.remove("/proc/self/mounts");
  CHECK((disk(m, "file system").verdict == Verdict::Ok));
}

TEST_CASE("a place that cannot be a folder, and one that cannot be written") {
  Machine m;
  make_laptop(m);
  m.host.write("/srv/file", "x");
  CHECK((finding_of(check_disk(m.host.view(), "/srv/file", 1 << 20), "space").verdict == Verdict::Fail));
  CHECK((finding_of(check_disk(m.host.view(), "/srv/file/below", 1 << 20), "space").verdict == Verdict::Fail));
  const auto live = check_disk(HostView::live(), "/proc/none", 1 << 20);
  CHECK((finding_of(live, "write speed").verdict != Verdict::Ok));
}
