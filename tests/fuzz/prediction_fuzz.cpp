// libFuzzer: any bytes as the choices that damage a model spec and a plan, which then go through the whole prediction.
// They are predicted, or refused with words and a place.
//
// Run it in the project root: what is damaged are the drawn cases of tests/golden/oracle and shipped models.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "tests/support/hostile_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<fsdp::HostileFiles> whole = fsdp::whole_files();
  std::size_t next = 0;
  // Two bytes a choice; without any more, zeros.
  const auto choose = [&](std::size_t bound) -> std::size_t {
    std::size_t value = 0;
    for (int i = 0; i < 2; ++i) value = 256 * value + (next < size ? data[next++] : 0);
    return value % bound;
  };
  fsdp::HostileFiles files = whole[choose(whole.size())];
  while (next < size) damage(files, choose);
  const std::string wrong = fsdp::predict_hostile(files);
  if (!wrong.empty()) {
    std::cerr << wrong << "\n" << files.spec << "\n" << files.plan << "\n";
    std::abort();
  }
  return 0;
}
