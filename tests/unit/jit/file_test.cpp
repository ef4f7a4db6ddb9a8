#include "jit/file.hpp"

#include <sys/stat.h>

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(File, what_is_written_is_read_and_mapped) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "file";
  for (const std::string& bytes :
       {std::string("one\0two", 7), std::string(), std::string(99999, 'x')}) {
    write_file(path, bytes);
    EXPECT_EQ(read_file(path, bytes.size()), bytes);
    EXPECT_EQ(MappedFile(path).bytes(), bytes);
  }
  EXPECT_EQ(read_file(path, 99998), std::nullopt);
  EXPECT_EQ(read_file(folder / "gone", 10), std::nullopt);
  EXPECT_EQ(read_file(folder / "", 10), std::nullopt);  // a folder
}

TEST(File, a_write_that_fails_names_its_step_and_leaves_nothing) {
  const ScratchFolder folder;
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { write_file(folder / "gone/file", "x"); }),
              AllOf(HasSubstr("creating "), HasSubstr("No such file or directory")));
  std::filesystem::create_directories(folder / "target/inside");  // a file cannot replace it
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { write_file(folder / "target", "x"); }),
              HasSubstr("renaming "));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 1);
}

TEST(File, mapping_what_is_no_file_is_an_error) {
  const ScratchFolder folder;
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { MappedFile(folder / "gone"); }),
              HasSubstr("opening "));
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { MappedFile(folder / ""); }), HasSubstr("is no file"));
  // Nobody writes to it, and nobody waits for that.
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { MappedFile(folder / "fifo"); }),
              HasSubstr("is no file"));
  EXPECT_FALSE(read_file(folder / "fifo", 100));
}

}  // namespace
}  // namespace rapt::jit
