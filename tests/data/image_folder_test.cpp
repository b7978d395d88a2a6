#include "testing.hpp"

#include "npu_train/data/image_dataset.hpp"

#include "images.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {
void add(const fs::path& dir, const std::string& name, const std::vector<uint8_t>& bytes) {
  fs::create_directories((dir / name).parent_path());
  write_bytes((dir / name).string(), bytes);
}
}  // namespace

TEST_CASE("classes and files come in sorted order; other files are passed over") {
  const TempDir dir;
  add(dir.path(), "zebra/b.PNG", to_png(rough(4, 5)));
  add(dir.path(), "zebra/a.jpg", to_jpeg(ramp(6, 7)));
  add(dir.path(), "ant/x.jpeg", to_jpeg(ramp(8, 9)));
  add(dir.path(), "ant/notes.txt", {'h', 'i'});
  add(dir.path(), ".hidden/c.png", to_png(rough(4, 5)));
  const ImageFolder data(dir.path().string());
  CHECK(data.size() == 3);
  CHECK(data.info().class_names == std::vector<std::string>{"ant", "zebra"});
  CHECK(data.where(1) == (dir / "zebra/a.jpg").string());
  CHECK(data.image(2).label == 1);
  const Sample sample = data.get(2);
  CHECK((sample.fields[0].second.sizes() == at::IntArrayRef({3, 4, 5})));
  CHECK(sample.fields[0].second[1][2][3].item<int>() == rough(4, 5).at(1, 2, 3));
}

TEST_CASE("images of a class may be at any depth") {
  const TempDir dir;
  add(dir.path(), "ant/b.png", to_png(rough(4, 5)));
  add(dir.path(), "ant/2024/may/a.png", to_png(rough(6, 7)));
  const ImageFolder data(dir.path().string());
  REQUIRE(data.size() == 2);
  CHECK(data.where(0).ends_with("ant/2024/may/a.png"));
  CHECK(data.get(0).fields[0].second.size(1) == 6);
  CHECK(data.where(1).ends_with("ant/b.png"));
}

TEST_CASE("validation keeps the numbers of training and refuses unknown classes") {
  const TempDir dir;
  add(dir.path(), "zebra/a.png", to_png(rough(4, 5)));
  const ImageFolder data(dir.path().string(), {"ant", "bee", "zebra"});
  CHECK(data.image(0).label == 2);
  CHECK(data.info().num_classes == 3);
  const Error error = error_of([&] { ImageFolder(dir.path().string(), {"ant", "bee"}); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(std::string(error.what()).find("zebra") != std::string::npos);
}

TEST_CASE("missing and empty folders are errors that describe the expected layout") {
  const TempDir dir;
  const Error missing = error_of([&] { ImageFolder((dir / "nowhere").string()); });
  CHECK(missing.kind() == ErrorKind::Data);
  CHECK(std::string(missing.what()).find("train/<class>") != std::string::npos);
  CHECK(error_of([&] { ImageFolder(dir.path().string()); }).kind() == ErrorKind::Data);
  fs::create_directory(dir / "ant");
  const Error empty = error_of([&] { ImageFolder(dir.path().string()); });
  CHECK(empty.kind() == ErrorKind::Data);
  CHECK(std::string(empty.what()).find("ant") != std::string::npos);
}

TEST_CASE("a file that has gone or is empty is an error with its name") {
  const TempDir dir;
  add(dir.path(), "ant/a.jpg", to_jpeg(ramp(8, 9)));
  add(dir.path(), "ant/b.jpg", {});
  const ImageFolder data(dir.path().string());
  CHECK(std::string(error_of([&] { data.get(1); }).what()).find("b.jpg") != std::string::npos);
  fs::remove(dir / "ant/a.jpg");
  const Error gone = error_of([&] { data.image(0); });
  CHECK(gone.kind() == ErrorKind::Data);
  CHECK(std::string(gone.what()).find("a.jpg") != std::string::npos);
}

TEST_CASE("what is not read is counted by what it is") {
  const TempDir dir;
  for (const char* name : {"ant/a.png", "ant/b.png", "ant/deep/er/c.png", "bee/d.png"}) add(dir.path(), name, to_png(rough(4, 5)));
  for (const char* name : {"ant/e.tif", "ant/deep/f.TIF", "bee/g.gif", "bee/notes.txt", "bee/README", "stray.png", "ant/.DS_Store"})
    add(dir.path(), name, {'x'});
  const TempDir other;
  add(other.path(), "h.png", to_png(rough(4, 5)));
  fs::create_directory_symlink(other.path(), dir / "bee" / "linked");
  const ImageFolder data(dir.path().string());
  CHECK(data.size() == 4);
  CHECK(data.in_subfolders() == 1);
  CHECK(data.skipped() ==
        std::map<std::string, int64_t>{
            {".gif", 1}, {".tif", 2}, {".txt", 1}, {"in a linked folder", 1}, {"outside a class folder", 1}, {"without extension", 1}});
}

TEST_CASE("a class of other formats is an error that names them") {
  const TempDir dir;
  add(dir.path(), "ant/a.tif", {'x'});
  add(dir.path(), "ant/b.tif", {'x'});
  const auto e = error_of([&] { ImageFolder(dir.path().string()); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK_MESSAGE(has(e.what(), "but 2 .tif; hint: convert them"), e.what());
}
