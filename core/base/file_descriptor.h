#pragma once

// An open file of the system.

#include <unistd.h>

namespace fsdp {

/// An open file. The destructor closes it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }

  int number() const { return number_; }
  /// Returns 0, or an error of an earlier write that the system reports only now.
  int close() {
    const int result = number_ > STDIN_FILENO ? ::close(number_) : 0;
    number_ = -1;
    return result;
  }

 private:
  int number_;
};

}  // namespace fsdp
